"""The scratch schema: created for one run, filled and cleared by its measurements, dropped at the end."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass

from ...database.connections.connection import Connection
from ...database.connections.dsn import Dsn
from ...database.connections.errors import translate_errors
from ...database.connections.open import connect, resolve_connection
from ...database.migrations import migrate
from ...database.sql import load
from ...database.statements.fetch import register_tasks
from ...errors import DatabaseError
from ...values.options import WorkerOptions
from ...values.schema_name import SchemaName

PREFIX = "graphile_worker_bench_"
TASK, FOREIGN, PROBE, LOAD = "bench", "bench_foreign", "bench_probe", "bench_load"
BETTER = -10
"""The priority of jobs that come before those that can run."""
CLOSE_WITHIN = 5.0  # seconds, in which an interrupted statement is cancelled on the server
DROP_WITHIN = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """Jobs to fill the table with."""

    task: str = TASK
    delay: float = -10.0
    """Seconds from now; a job with a negative delay is ready."""
    lowest_priority: int = 0
    priorities: int = 1
    queues: int = 0
    """The number of named queues that the jobs are spread over."""
    attempts: int = 0
    max_attempts: int = 25


class Scratch:
    """The schema of one run, on a connection for preparing measurements."""

    def __init__(self, connection: Connection, schema: SchemaName, options: WorkerOptions) -> None:
        self.schema = schema
        self._connection = connection
        self._options = options

    async def clear(self) -> None:
        """Remove all jobs and queues."""
        rows = await self._connection.fetch(load("bench/referencing_tables", self.schema), self.schema.name)
        statement = load("bench/clear", self.schema)
        await self._connection.execute(", ".join([statement.strip(), *(row["name"] for row in rows)]))

    async def make_queues(self, count: int, *, held_by: str | None = None) -> None:
        """Create named queues for jobs to be spread over."""
        await self._connection.execute(load("bench/queues", self.schema), count, held_by)

    async def fill(self, jobs: Jobs, first: int, last: int) -> None:
        """Add the jobs with these numbers."""
        await self._connection.execute(
            load("bench/fill", self.schema),
            jobs.task,
            first,
            last,
            jobs.delay,
            jobs.lowest_priority,
            jobs.priorities,
            jobs.queues,
            jobs.attempts,
            jobs.max_attempts,
        )

    async def delete_jobs(self) -> None:
        """Delete all jobs and leave dead rows for vacuum to remove."""
        await self._connection.execute(load("bench/delete_jobs", self.schema))

    async def settle(self) -> None:
        """Vacuum and analyze."""
        await self._connection.execute(load("bench/vacuum", self.schema))

    @asynccontextmanager
    async def long_transaction(self) -> AsyncIterator[None]:
        """While it is open, vacuum cannot remove rows that are deleted."""
        connection = await _connect(self._options)
        try:
            async with connection.transaction(isolation="repeatable_read"):
                await connection.fetchrow(load("bench/server", self.schema))  # takes the snapshot
                yield
        finally:
            await connection.close(timeout=CLOSE_WITHIN)

    async def describe_server(self) -> dict[str, str]:
        """The version and the most important settings."""
        row = await self._connection.fetchrow(load("bench/server", self.schema))
        return dict(row.items()) if row is not None else {}


@asynccontextmanager
async def scratch_schema(options: WorkerOptions) -> AsyncIterator[Scratch]:
    """A schema with a unique name, which is always dropped at the end."""
    schema = SchemaName(f"{PREFIX}{os.getpid()}_{secrets.token_hex(4)}")
    connection = await _connect(options)
    try:
        with translate_errors(schema):
            await migrate(connection, schema)
            await register_tasks(connection, schema, [TASK, FOREIGN, PROBE, LOAD])
            yield Scratch(connection, schema, options)
    finally:
        with _ignoring_interrupts():
            with suppress(Exception):  # in whatever state it is
                await connection.close(timeout=CLOSE_WITHIN)
            await _drop(options, schema)


async def _connect(options: WorkerOptions) -> Connection:
    found = resolve_connection(options.connection_string)
    assert isinstance(found, Dsn)  # noqa: S101 - no pool was given
    return await connect(
        found, prepared_statements=options.prepared_statements, application_name="graphile-worker bench"
    )


async def _drop(options: WorkerOptions, schema: SchemaName) -> None:
    try:
        async with asyncio.timeout(DROP_WITHIN):
            connection = await _connect(options)
            try:
                await connection.execute(load("bench/drop_schema", schema))
            finally:
                await connection.close()
    except Exception as error:
        raise DatabaseError(
            f"the scratch schema could not be dropped ({error or type(error).__name__}); once the database "
            f"is reachable again, run: drop schema {schema.quoted} cascade"
        ) from error


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Keep a second Ctrl-C from leaving a million rows behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
