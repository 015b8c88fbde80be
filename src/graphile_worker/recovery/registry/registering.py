"""Registering a pool: its row, what it says about itself, and its row in the Rust port's table of workers.

All of it is one statement. If the server refuses that, because the schema is older or the role may not use
one of the tables, each part is written for itself, as far as it can be.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import msgspec

from ...database.connections import sqlstates
from ...database.connections.connection import Connection
from ...database.connections.encoding import teach_arrays
from ...database.connections.errors import explained, sqlstate_of
from ...database.sql import load
from ...database.statements.inspection import MAX_DESCRIBED, TaskDescription
from ...database.statements.schedules import ScheduleDefinition, register_schedules
from ...values.clock import uptime
from ...values.flags import NO_DESCRIPTION, FlagDescription
from ...values.schema_name import SchemaName
from .pool_state import LaneDescription
from .rust_heartbeat import RustHeartbeat
from .workers import Liveness, Registration

REFUSED = (
    sqlstates.INSUFFICIENT_PRIVILEGE,
    sqlstates.UNDEFINED_COLUMN,
    sqlstates.UNDEFINED_TABLE,
    sqlstates.READ_ONLY_SQL_TRANSACTION,
)

logger = logging.getLogger("graphile_worker.recovery")


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


async def register_pool(
    connection: Connection,
    schema: SchemaName,
    registration: Registration,
    description: Description | None,
    rust_heartbeat: RustHeartbeat,
    *,
    liveness: Liveness,
    backend_pid: int | None = None,
    started_at: datetime | None = None,
    timeout: float | None = None,
) -> datetime:
    """Register the pool, or register it again; return its start time by the server's clock.

    The row in the Rust port's table is left to the next heartbeat if that table is locked.
    """
    teach_arrays(connection)
    pool_id, *terms = _terms(registration, liveness, backend_pid, started_at)
    described = _described(description)
    sent_at, in_rust = uptime(), rust_heartbeat.has_table
    name = "recovery/register_and_describe_worker" + ("" if in_rust else "@not_in_rust")
    try:
        found: datetime = await connection.fetchval(
            load(name, schema), pool_id, *described, *terms, timeout=rust_heartbeat.timeout
        )
        if in_rust:
            rust_heartbeat.sent(sent_at)
    except Exception as error:
        if sqlstate_of(error) is None and not isinstance(error, TimeoutError):
            raise
        with suppress(TimeoutError):
            await rust_heartbeat.send_if_due(connection)
        statement = load("recovery/register_worker", schema)
        found = await connection.fetchval(statement, pool_id, *terms, timeout=timeout)
        if description is not None:
            statement = load("recovery/describe_worker", schema)
            await _say_more(connection.execute(statement, pool_id, *described, timeout=timeout))
    if description is not None and description.schedules:
        await _say_more(
            register_schedules(connection, schema, pool_id, description.schedules, timeout=timeout)
        )
    return found


async def deregister_pool(
    connection: Connection,
    schema: SchemaName,
    pool_id: str,
    rust_heartbeat: RustHeartbeat,
    *,
    timeout: float | None = None,
) -> None:
    """Remove the rows of a pool that has shut down and holds nothing."""
    if rust_heartbeat.is_registered:
        try:
            statement = load("recovery/deregister_worker@in_rust", schema)
            await connection.execute(statement, pool_id, timeout=timeout)
        except Exception as error:
            if sqlstate_of(error) is None:
                raise
        else:
            return
    await connection.execute(load("recovery/deregister_worker", schema), pool_id, timeout=timeout)
    await rust_heartbeat.deregister(connection)


def _terms(
    registration: Registration, liveness: Liveness, backend_pid: int | None, started_at: datetime | None
) -> tuple[Any, ...]:
    """The values of `register_worker`."""
    return (
        registration.id,
        registration.host,
        registration.pid,
        registration.version,
        list(registration.tasks),
        registration.concurrency,
        started_at,
        liveness,
        backend_pid,
        timedelta(seconds=registration.heartbeat_interval),
        timedelta(seconds=registration.grace),
    )


def _described(description: Description | None) -> tuple[Any, ...]:
    """The values of `describe_worker` after the pool's id."""
    if description is None:
        return (None, None, None, [], [], [], [], [])
    tasks = description.tasks[:MAX_DESCRIBED]
    return (
        description.app_version,
        msgspec.json.encode(list(description.lanes)).decode(),
        msgspec.json.encode(description.flags).decode(),
        [name for name, _ in tasks],
        [each.runbook for _, each in tasks],
        [each.owner for _, each in tasks],
        [each.payload_type for _, each in tasks],
        [each.payload_schema for _, each in tasks],
    )


async def _say_more(statement: Awaitable[object]) -> None:
    """A refusal is no reason not to work."""
    try:
        await statement
    except Exception as error:
        if sqlstate_of(error) not in REFUSED:
            raise
        logger.debug("could not publish more about this worker: %s", explained(error))
