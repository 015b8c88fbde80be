"""The journal of one worker process: lines in a file of the test's own, which no fault can reach.

A table in the server under test could not be written just when it matters. What is written here survives the
death of the process, and the clock is one that all processes of the machine share. A line is one call of the
system: short jobs must not become long by it.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from chaos.history import Outcome, Run
from graphile_worker import Job

BEGAN, ENDED, POOL, HELD = "began", "ended", "pool", "held"


class Journal:
    """Written by tasks of one process, in its event loop and in threads."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._numbers = itertools.count()
        self._encode = msgspec.json.encode

    def began(self, token: str, queue: str | None, job: Job, *, is_held: bool = False) -> int:
        """A task begins; the number of the run."""
        number = next(self._numbers)
        values = {
            "pool": job.locked_by,
            "job_id": job.id,
            "token": token,
            "task": job.task_identifier,
            "queue": queue,
            "attempts": job.attempts,
            "locked_at": job.locked_at.timestamp() if job.locked_at is not None else 0.0,
            "held": is_held,
            "started": time.monotonic(),
        }
        self._write(BEGAN, number, values)
        return number

    def ended(self, number: int, outcome: Outcome) -> None:
        self._write(ENDED, number, {"ended": time.monotonic(), "outcome": outcome})

    def pool(self, pool_id: str) -> None:
        self._write(POOL, pool_id)

    def held(self, count: int) -> None:
        """A held batch was fetched."""
        self._write(HELD, count)

    def _write(self, *line: Any) -> None:
        os.write(self._file, self._encode(line) + b"\n")


def read_pools(path: Path) -> list[str]:
    """The pools of a process; none before it is ready."""
    return [line[1] for line in _lines(path, POOL)]


def read_held(path: Path) -> int:
    """How many jobs a process has fetched in held batches."""
    return sum(line[1] for line in _lines(path, HELD))


def read_pools_since(path: Path, moment: float) -> set[str]:
    """The pools of a process that have started a job after this moment."""
    return {line[2]["pool"] for line in _lines(path, BEGAN) if line[2]["started"] >= moment}


def read_runs(path: Path, worker: str) -> list[Run]:
    """What the tasks of a process noted."""
    runs = {line[1]: line[2] for line in _lines(path, BEGAN)}
    for line in _lines(path, ENDED):
        runs[line[1]] |= line[2]
    return [Run(worker=worker, **values) for values in runs.values()]


def _lines(path: Path, kind: str) -> Iterator[Any]:
    if not path.exists():
        return
    start = f'["{kind}"'.encode()
    with path.open("rb") as file:
        for line in file:
            if line.startswith(start) and line.endswith(b"\n"):
                yield msgspec.json.decode(line)
