"""What a pool says about itself in the registry, so that other processes see it.

- `PoolState`: whether notifications reach it, its clock, whether it fetches jobs, the load of its process,
  and which processes and machines run its tasks.
- `LaneDescription`, once per start; see `registering`.
- `LoopBlockage`: a blocked event loop. The watchdog of the worker notices it, and the thread that sends
  heartbeats reports it, because nothing on the loop can. A worker on a connection pool of the caller has no
  such thread: it only misses heartbeats.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from ...database.connections import sqlstates
from ...database.connections.connection import Connection
from ...database.connections.errors import sqlstate_of
from ...database.sql import load
from ...values.job import instant
from ...values.schema_name import SchemaName
from .load import Load

CLOCK_STEP = 0.5  # seconds: smaller changes of the clock are not reported


class ExecutorPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A process or machine that runs tasks for a worker."""

    executor: str
    """The name of the executor."""
    place: str
    """Such as `process 4711`, or the address of a machine."""
    job_id: int | None = None
    """The job that it runs."""
    memory: int | None = None
    """Bytes; None if unknown."""


GetPlaces = Callable[[], list[ExecutorPlace]]


class PoolState(msgspec.Struct, frozen=True, kw_only=True):
    """As reported; None if unknown."""

    is_listening: bool | None = None
    clock: float | None = None
    """Seconds that its clock is ahead of the server's."""
    executors: list[ExecutorPlace] | None = None
    stalled_since: float | None = None
    """Since when slots have been free without a successful fetch; in the row, seconds since 1970."""
    load: Load | None = None
    """Of its process; sent with each heartbeat."""


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


class ReportingPool(Protocol):
    """The part of a worker pool that `StateReporter` looks at, from the thread of heartbeats."""

    id: str

    @property
    def is_listening(self) -> bool: ...

    @property
    def stalled_since(self) -> float | None: ...

    def blockage(self) -> LoopBlockage | None: ...


class StateReporter:
    """Reports how a pool stands, and what blocks its event loop, when that has changed."""

    def __init__(self, schema: SchemaName, pool: ReportingPool, get_places: GetPlaces | None) -> None:
        """`get_places`: what runs tasks elsewhere; None if nothing does."""
        self._schema = schema
        self._pool = pool
        self._get_places = get_places
        self._blockage: LoopBlockage | None = None
        self._state: PoolState | None = None
        self._refused: set[str] = set()
        self._ahead: float | None = None

    def forget(self) -> None:
        """The row of the pool is new."""
        self._blockage = self._state = None

    def heard(self, sent_at: float, server_time: float) -> None:
        """A heartbeat that was sent at this time has come back with the server's time."""
        self._ahead = (sent_at + time.time()) / 2 - server_time

    async def report(self, connection: Connection, *, timeout: float) -> None:
        """Report what has changed."""
        blockage = self._pool.blockage()
        if blockage != self._blockage:
            task, job, since = blockage or (None, None, None)
            seconds = None if since is None else time.monotonic() - since
            await self._write(connection, "report_blockage", task, job, seconds, timeout=timeout)
            self._blockage = blockage
        stalled = self._pool.stalled_since
        places = None if self._get_places is None else self._get_places()
        state = PoolState(
            is_listening=self._pool.is_listening, clock=self._ahead, stalled_since=stalled, executors=places
        )
        if self._differs(state):
            executors = None if places is None else msgspec.json.encode(places).decode()
            seconds = None if stalled is None else time.monotonic() - stalled
            values = (state.is_listening, state.clock, executors, seconds)
            await self._write(connection, "report_state", *values, timeout=timeout)
            self._state = state

    async def _write(self, connection: Connection, name: str, *values: object, timeout: float) -> None:
        if name in self._refused:
            return
        statement = load(f"recovery/{name}", self._schema)
        try:
            await connection.execute(statement, self._pool.id, *values, timeout=timeout)
        except Exception as error:
            if sqlstate_of(error) not in (sqlstates.UNDEFINED_COLUMN, sqlstates.INSUFFICIENT_PRIVILEGE):
                raise
            self._refused.add(name)  # the schema's owner has not run this version's migration

    def _differs(self, state: PoolState) -> bool:
        last = self._state
        if last is None or last.is_listening != state.is_listening or last.executors != state.executors:
            return True
        if last.stalled_since != state.stalled_since:
            return True
        if last.clock is None or state.clock is None:
            return last.clock is not state.clock
        return abs(last.clock - state.clock) >= CLOCK_STEP


def decode_state(reported: str | None) -> PoolState:
    """The column `state` as JSON text."""
    return decode_reported(reported, PoolState) or PoolState()


T = TypeVar("T")


def decode_reported(reported: str | None, type: type[T]) -> T | None:
    """JSON of another worker; None if its version writes something else."""
    try:
        return None if reported is None else msgspec.json.decode(reported, type=type)
    except (msgspec.DecodeError, RecursionError):
        return None


def decode_list(reported: str | None, type: type[T]) -> list[T] | None:
    """A JSON array of another worker, without the elements that are something else; None if it is none."""
    found = decode_reported(reported, list[msgspec.Raw])
    if found is None:
        return None
    decoded = (decode_reported(bytes(each).decode(), type) for each in found)
    return [each for each in decoded if each is not None]


class LaneDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One lane of a pool."""

    name: str
    slots: int
    tasks: list[str]


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


class _Reported(msgspec.Struct):
    task: str | None
    job: int | None
    since: float


def decode_blockage(reported: str | None, now: float) -> BlockedLoop | None:
    """The column `blocked` as JSON text; `now` is the server's time in seconds since 1970."""
    found = decode_reported(reported, _Reported)
    if found is None:
        return None
    return BlockedLoop(found.task, found.job, instant(found.since), max(0.0, now - found.since))
