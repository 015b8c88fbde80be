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

BEGAN, ENDED, POOL, HELD, WRITTEN, DISCARDED = "began", "ended", "pool", "held", "written", "discarded"


class Journal:
    """Written by tasks of one process, in its event loop and in threads."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._numbers = itertools.count()
        self._encode = msgspec.json.encode

    def began(self, token: str, queue: str | None, job: Job, *, session: int | None = None) -> int:
        """A task begins; the number of the run. `session`: of the held batch that the job belongs to."""
        number = next(self._numbers)
        values = {
            "pool": job.locked_by,
            "job_id": job.id,
            "token": token,
            "task": job.task_identifier,
            "queue": queue,
            "attempts": job.attempts,
            "locked_at": job.locked_at.timestamp() if job.locked_at is not None else 0.0,
            "held": session is not None,
            "session": session,
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

    def written(self, job_ids: list[int]) -> None:
        """The outcomes of these jobs are committed."""
        self._write(WRITTEN, time.monotonic(), job_ids)

    def discarded(self, job_id: int) -> None:
        """The outcome of a job was not written, because it belongs to another worker."""
        self._write(DISCARDED, time.monotonic(), [job_id])

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
    runs: dict[int, dict[str, Any]] = {}
    latest: dict[int, dict[str, Any]] = {}  # by the id of the job
    for line in _lines(path, BEGAN, ENDED, WRITTEN, DISCARDED):
        kind = line[0]
        if kind == BEGAN:
            runs[line[1]] = latest[line[2]["job_id"]] = line[2]
        elif kind == ENDED:
            runs[line[1]] |= line[2]
        else:
            for job_id in line[2]:
                if job_id in latest:  # else it ended without being run, as cancelled ones do
                    latest[job_id][kind] = line[1]
    return [Run(worker=worker, **values) for values in runs.values()]


class Tail:
    """What is added to a journal from now on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = path.stat().st_size if path.exists() else 0

    def read(self) -> list[Any]:
        """The lines since the last call that say that a batch was fetched or a job began."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._position)
            data = file.read()
        data = data[: data.rfind(b"\n") + 1]
        self._position += len(data)
        return [msgspec.json.decode(line) for line in data.splitlines() if line.startswith(SHOWN)]


SHOWN = (b'["held"', b'["began"')


def _lines(path: Path, *kinds: str) -> Iterator[Any]:
    if not path.exists():
        return
    starts = tuple(f'["{kind}"'.encode() for kind in kinds)
    with path.open("rb") as file:
        for line in file:
            if line.startswith(starts) and line.endswith(b"\n"):
                yield msgspec.json.decode(line)
