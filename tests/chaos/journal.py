"""The journal of one worker process: a table of the test's own, in a file that no fault can reach.

A table in the server under test could not be written just when it matters. What is committed here survives
the death of the process, and the clock is one that all processes of the machine share.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

from chaos.history import Outcome, Run
from graphile_worker import Job

TABLES = """
create table if not exists runs (
  number integer primary key, token text, task text, queue text, job_id integer, pool text, attempts integer,
  locked_at real, started real, ended real, outcome text
);
create table if not exists pools (id text);
"""


class Journal:
    """Written by tasks of one process, in its event loop and in threads."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("pragma journal_mode = wal")
        self._connection.execute("pragma synchronous = off")  # the machine does not die, only the process
        self._connection.executescript(TABLES)
        self._mutex = threading.Lock()

    def began(self, token: str, queue: str | None, job: Job) -> int:
        """A task begins; the number of the run."""
        locked_at = job.locked_at.timestamp() if job.locked_at is not None else 0.0
        with self._mutex:
            cursor = self._connection.execute(
                "insert into runs (token, task, queue, job_id, pool, attempts, locked_at, started) "
                "values (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(token, job.task_identifier, queue, job.id, job.locked_by, job.attempts, locked_at),
                    time.monotonic(),
                ),
            )
            assert cursor.lastrowid is not None
            return cursor.lastrowid

    def ended(self, number: int, outcome: Outcome) -> None:
        with self._mutex:
            self._connection.execute(
                "update runs set ended = ?, outcome = ? where number = ?", (time.monotonic(), outcome, number)
            )

    def pool(self, pool_id: str) -> None:
        with self._mutex:
            self._connection.execute("insert into pools values (?)", (pool_id,))


def read_pools(path: Path) -> list[str]:
    """The pools of a process; none before it is ready."""
    return [row[0] for row in _rows(path, "select id from pools")]


def read_runs(path: Path, worker: str) -> list[Run]:
    """What the tasks of a process noted."""
    columns = "pool, job_id, token, task, queue, attempts, locked_at, started, ended, outcome"
    return [
        Run(worker=worker, **dict(zip(columns.split(", "), row, strict=True)))
        for row in _rows(path, f"select {columns} from runs order by number")
    ]


def _rows(path: Path, statement: str) -> list[tuple[Any, ...]]:
    if not path.exists():
        return []
    connection = sqlite3.connect(path)
    try:
        return connection.execute(statement).fetchall()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):  # the process ended before it had made them
            return []
        raise
    finally:
        connection.close()
