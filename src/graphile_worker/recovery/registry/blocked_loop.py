"""A blocked event loop, as other processes see it: in the row of the pool.

The watchdog of the worker notices it, and the thread that sends heartbeats reports it, because nothing on the
loop can. A worker on a connection pool of the caller has no such thread: it only misses heartbeats.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import msgspec

from ...database.connections import sqlstates
from ...database.connections.connection import Connection
from ...database.connections.errors import sqlstate_of
from ...database.sql import load
from ...values.job import instant
from ...values.schema_name import SchemaName


class LoopBlockage(NamedTuple):
    """What blocks the event loop of this process."""

    task_identifier: str | None
    job_id: int | None
    since: float
    """By `time.monotonic`."""

    @property
    def culprit(self) -> str:
        """What blocks the loop, for people."""
        return _culprit(self.task_identifier, self.job_id)


@dataclass(frozen=True, slots=True)
class BlockedLoop:
    """What blocks the event loop of a worker pool; no task if it is other code."""

    task_identifier: str | None
    job_id: int | None
    since: datetime
    seconds: float
    """How long it has lasted."""

    @property
    def culprit(self) -> str:
        """What blocks the loop, for people."""
        return _culprit(self.task_identifier, self.job_id)


def _culprit(task_identifier: str | None, job_id: int | None) -> str:
    if task_identifier is None:
        return "something other than a task"
    return f"task {task_identifier} (job {job_id})"


class BlockageReporter:
    """Reports when the loop of a pool is blocked, and when it runs again; otherwise does nothing."""

    def __init__(
        self, schema: SchemaName, pool_id: str, get_blockage: Callable[[], LoopBlockage | None]
    ) -> None:
        self._schema = schema
        self._pool_id = pool_id
        self._get_blockage = get_blockage
        self._reported: LoopBlockage | None = None
        self._can_report = True

    def forget(self) -> None:
        """The row of the pool is new."""
        self._reported = None

    async def report(self, connection: Connection, *, timeout: float) -> None:
        """Report a change."""
        blockage = self._get_blockage()
        if blockage == self._reported or not self._can_report:
            return
        try:
            await connection.execute(
                load("recovery/report_blockage", self._schema),
                self._pool_id,
                None if blockage is None else blockage.task_identifier,
                None if blockage is None else blockage.job_id,
                None if blockage is None else time.monotonic() - blockage.since,
                timeout=timeout,
            )
        except Exception as error:
            if sqlstate_of(error) not in (sqlstates.UNDEFINED_COLUMN, sqlstates.INSUFFICIENT_PRIVILEGE):
                raise
            self._can_report = False  # the schema's owner has not run this version's migration
        self._reported = blockage


class _Reported(msgspec.Struct):
    task: str | None
    job: int | None
    since: float


def decode_blockage(reported: str | None, now: float) -> BlockedLoop | None:
    """The column `blocked` as JSON text; `now` is the server's time in seconds since 1970."""
    if reported is None:
        return None
    found = msgspec.json.decode(reported, type=_Reported)
    return BlockedLoop(found.task, found.job, instant(found.since), max(0.0, now - found.since))
