"""What a pool says about itself in the registry, so that other processes see it.

- `PoolState`: whether notifications reach it, its clock, whether it fetches jobs, the load of its process,
  and which processes and machines run its tasks.
- `Description`, once per start: its version, lanes, crontab, rules for flags, and what it knows about its
  tasks.
- `LoopBlockage`: a blocked event loop. The watchdog of the worker notices it, and the thread that sends
  heartbeats reports it, because nothing on the loop can. A worker on a connection pool of the caller has no
  such thread: it only misses heartbeats.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple, TypeVar

import msgspec

from ...database.connections import sqlstates
from ...database.connections.connection import Connection
from ...database.connections.errors import explained, sqlstate_of
from ...database.sql import load
from ...database.statements.inspection import TaskDescription, describe_tasks
from ...database.statements.schedules import ScheduleDefinition, register_schedules
from ...values.flags import NO_DESCRIPTION, FlagDescription
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


class StateReporter:
    """Reports how a pool stands when that has changed; otherwise does nothing."""

    def __init__(
        self,
        schema: SchemaName,
        pool_id: str,
        is_listening: Callable[[], bool],
        get_places: GetPlaces | None = None,
        get_stalled: Callable[[], float | None] = lambda: None,
    ) -> None:
        """`get_places`: what runs tasks elsewhere; None if nothing does.

        `get_stalled`: since when the pool fetches nothing although it should, by `time.monotonic`.
        """
        self._get_stalled = get_stalled
        self._get_places = get_places
        self._schema = schema
        self._pool_id = pool_id
        self._is_listening = is_listening
        self._reported: PoolState | None = None
        self._can_report = True
        self._ahead: float | None = None

    def forget(self) -> None:
        """The row of the pool is new."""
        self._reported = None

    def heard(self, sent_at: float, server_time: float) -> None:
        """A heartbeat that was sent at this time has come back with the server's time."""
        self._ahead = (sent_at + time.time()) / 2 - server_time

    async def report(self, connection: Connection, *, timeout: float) -> None:
        """Report a change."""
        stalled = self._get_stalled()
        state = PoolState(is_listening=self._is_listening(), clock=self._ahead, stalled_since=stalled)
        if self._get_places is not None:
            state = msgspec.structs.replace(state, executors=self._get_places())
        if not self._can_report or not self._differs(state):
            return
        try:
            await connection.execute(
                load("recovery/report_state", self._schema),
                self._pool_id,
                state.is_listening,
                state.clock,
                None if state.executors is None else msgspec.json.encode(state.executors).decode(),
                None if stalled is None else time.monotonic() - stalled,
                timeout=timeout,
            )
        except Exception as error:
            if sqlstate_of(error) not in (sqlstates.UNDEFINED_COLUMN, sqlstates.INSUFFICIENT_PRIVILEGE):
                raise
            self._can_report = False  # the schema's owner has not run this version's migration
        self._reported = state

    def _differs(self, state: PoolState) -> bool:
        last = self._reported
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


REFUSED = (
    sqlstates.INSUFFICIENT_PRIVILEGE,
    sqlstates.UNDEFINED_COLUMN,
    sqlstates.UNDEFINED_TABLE,
    sqlstates.READ_ONLY_SQL_TRANSACTION,
)

logger = logging.getLogger("graphile_worker.recovery")


class LaneDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One lane of a pool."""

    name: str
    slots: int
    tasks: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """More about a pool, for those who look at workers. It works without."""

    app_version: str | None = None
    lanes: Sequence[LaneDescription] = ()
    schedules: Sequence[ScheduleDefinition] = ()
    flags: FlagDescription = NO_DESCRIPTION
    tasks: Sequence[tuple[str, TaskDescription]] = ()

    def with_slots(self, slots: Mapping[str, int]) -> Description:
        """The same with these slots of the lanes, by name."""
        lanes = [msgspec.structs.replace(lane, slots=slots.get(lane.name, lane.slots)) for lane in self.lanes]
        return replace(self, lanes=lanes)


async def describe_worker(
    connection: Connection,
    schema: SchemaName,
    pool_id: str,
    description: Description,
    *,
    timeout: float | None = None,
) -> None:
    """Write it beside the row of a pool that is registered. A refusal is no reason not to work."""
    try:
        await connection.execute(
            load("recovery/describe_worker", schema),
            pool_id,
            description.app_version,
            msgspec.json.encode(list(description.lanes)).decode(),
            timeout=timeout,
        )
        if description.schedules:
            await register_schedules(connection, schema, pool_id, description.schedules, timeout=timeout)
        await describe_tasks(
            connection,
            schema,
            pool_id,
            flags=description.flags,
            tasks=description.tasks,
            timeout=timeout,
        )
    except Exception as error:
        if sqlstate_of(error) not in REFUSED:
            raise
        logger.debug("this worker cannot say more about itself: %s", explained(error))


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
    found = decode_reported(reported, _Reported)
    if found is None:
        return None
    return BlockedLoop(found.task, found.job, instant(found.since), max(0.0, now - found.since))
