"""Runs the checks one by one. A check that fails or times out becomes a finding; the others continue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

from ..config import Settings
from ..database.connections.connection import Connection
from ..database.connections.errors import sqlstate_of
from ..database.connections.open import connect, resolve_connection
from ..database.migrations.own_objects import applied_numbers
from ..database.migrations.state import SchemaState, read_state
from ..database.statements.pauses import pauses_if_readable
from ..errors import GraphileWorkerError, NoDatabaseError
from ..errors.text import message_of
from ..recovery.registry.workers import SCANNED_PAGES
from ..values.clock import Clock, SystemClock
from ..values.options import WorkerOptions
from . import connection_checks, facts, job_checks, schema_checks, waiting_checks
from .finding import Finding, Thresholds, well

T = TypeVar("T")

CHECK_WITHIN = 15.0
"""Seconds that one check may take."""
PAGE = 8192
WORKERS_TABLE = "_private_py_workers"
LIMITS_TABLE = "_private_py_limits"
QUEUE_INDEX = "_private_py_jobs_queue_next_index"
FAILED_INDEX = "_private_py_jobs_failed_index"


async def examine(
    settings: Settings,
    *,
    thresholds: Thresholds | None = None,
    scan: bool = False,
    clock: Clock | None = None,
    no_database_hint: Callable[[], str] | None = None,
) -> list[Finding]:
    """All findings about the database that the settings name.

    `scan`: scan the jobs table for locks whatever its size. `no_database_hint` completes the advice when no
    database is configured.
    """
    try:
        async with _connections(settings) as (connection, other):
            return await _Examination(
                settings.worker, connection, other, thresholds or Thresholds(), clock or SystemClock(),
                scan=scan,
            ).run()  # fmt: skip
    except GraphileWorkerError as error:
        advice = message_of(error)
        if isinstance(error, NoDatabaseError) and no_database_hint is not None:
            advice += f"; {no_database_hint()}"
        return [
            Finding(
                "connection", "error", "the database is unreachable",
                "Workers and clients cannot work.", advice,
            )
        ]  # fmt: skip


async def examine_on(
    options: WorkerOptions,
    connection: Connection,
    other: Connection,
    *,
    thresholds: Thresholds | None = None,
    clock: Clock | None = None,
    depth: facts.Depth | None = None,
) -> list[Finding]:
    """The same over two connections of the caller, outside of a transaction."""
    examination = _Examination(
        options, connection, other, thresholds or Thresholds(), clock or SystemClock(), scan=False,
        depth=depth,
    )  # fmt: skip
    return await examination.run()


@asynccontextmanager
async def _connections(settings: Settings) -> AsyncIterator[tuple[Connection, Connection]]:
    """Two connections of our own, without prepared statements, so that they work behind any pooler."""
    dsn: Any = resolve_connection(settings.worker.connection_string)
    async with AsyncExitStack() as stack:

        async def opened() -> Connection:
            connection = await connect(
                dsn, prepared_statements=False, application_name="graphile_worker doctor"
            )
            stack.callback(connection.terminate)
            return connection

        yield await opened(), await opened()


class _Examination:
    def __init__(
        self,
        options: WorkerOptions,
        connection: Connection,
        other: Connection,
        thresholds: Thresholds,
        clock: Clock,
        *,
        scan: bool,
        depth: facts.Depth | None = None,
    ) -> None:
        self._depth = depth or facts.Depth()
        self._options = options
        self._schema = options.schema_name
        self._connection = connection
        self._other = other
        self._thresholds = thresholds
        self._clock = clock
        self._scan = scan
        self._findings: list[Finding] = []

    async def run(self) -> list[Finding]:
        """Check the connection, then permissions, then what they give access to."""
        connection, schema = self._connection, self._schema
        self._findings.append(well("connection", "the database answers"))
        server = await self._check(
            "server",
            facts.ServerFacts.load_one(connection),
            lambda facts: (*connection_checks.check_server(facts), *connection_checks.check_settings(facts)),
        )
        await self._check(
            "connection",
            connection_checks.probe(connection, self._other, self._clock),
            self._judge_connection,
        )
        tables = await self._check("rights", facts.TableRights.load(connection, schema, schema.name)) or []
        functions = (
            await self._check("functions", facts.FunctionFacts.load(connection, schema, schema.name)) or []
        )
        if server is not None and tables:
            found = list(schema_checks.check_rights(tables, functions, server.role, schema))
            self._findings += found
            if any(finding.severity == "error" for finding in found):
                return self._findings  # without permissions every other finding would mislead
        state = await self._check(
            "schema", read_state(connection, schema), lambda state: schema_checks.check_schema(state, schema)
        )
        if state is not None and state.revision is not None:
            indexes = await self._check_schema(state, functions)
            await self._check_jobs({table.name for table in tables}, indexes)
        return self._findings

    def _judge_connection(self, facts: connection_checks.ConnectionFacts) -> Iterable[Finding]:
        yield connection_checks.check_clock(facts, self._thresholds)
        yield connection_checks.check_pooler(facts, prepared_statements=self._options.prepared_statements)
        yield connection_checks.check_listen(facts, self._options.poll_interval)

    async def _check_schema(self, state: SchemaState, functions: list[facts.FunctionFacts]) -> set[str]:
        """Return the names of the usable indexes."""
        schema, connection = self._schema, self._connection
        applied: set[int] = set()
        if state.has_own_ledger:
            applied = await self._check("schema", applied_numbers(connection, schema)) or set()
        self._findings += schema_checks.check_own_objects(applied)
        self._findings += schema_checks.check_functions(functions, schema)
        indexes = await self._check(
            "indexes",
            facts.IndexFacts.load(connection, schema, schema.name),
            lambda indexes: schema_checks.check_indexes(indexes, applied, schema),
        )
        await self._check(
            "sequences",
            facts.SequenceFacts.load(connection, schema, schema.name),
            lambda sequences: schema_checks.check_sequences(sequences, functions),
        )
        return {index.name for index in indexes or () if index.is_valid}

    async def _check_jobs(self, tables: set[str], indexes: set[str]) -> None:
        schema, connection, thresholds = self._schema, self._connection, self._thresholds
        table = await self._check(
            "table",
            facts.TableFacts.load_one(connection, schema, f"{schema.quoted}._private_jobs"),
            lambda table: job_checks.check_table(table, schema, thresholds),
        )
        pages = table.table_bytes // PAGE if table is not None else 0
        scan = self._scan or pages <= SCANNED_PAGES
        locks = await self._check(
            "locks",
            facts.locks(connection, schema, has_workers=WORKERS_TABLE in tables, scan=scan),
            lambda locks: (*job_checks.check_workers(locks), *job_checks.check_locks(locks, thresholds)),
        )
        if scan:
            await self._check("queues", facts.StuckQueue.load(connection, schema), job_checks.check_queues)
            if LIMITS_TABLE in tables and WORKERS_TABLE in tables:
                await self._check(
                    "limits", facts.JobsOutsideLimit.load(connection, schema), waiting_checks.check_limits
                )
        else:
            self._findings += job_checks.not_scanned(pages)
        if QUEUE_INDEX in indexes:
            await self._check(
                "queues",
                facts.LostQueue.load(connection, schema, self._depth.waiting_queues),
                lambda queues: job_checks.check_lost_queues(queues, schema),
            )
        pauses = await self._check(
            "pauses", pauses_if_readable(connection, schema), waiting_checks.check_pauses
        )
        workers = locks.workers if locks is not None else None
        await self._check(
            "waiting",
            facts.waiting(connection, schema, workers, pauses or [], ready_jobs=self._depth.ready_jobs),
            lambda waiting: waiting_checks.check_waiting(waiting, thresholds),
        )
        await self._check(
            "failures",
            facts.failures(connection, schema, pages, has_index=FAILED_INDEX in indexes, depth=self._depth),
            job_checks.check_failures,
        )
        await self._check(
            "transactions",
            facts.OldTransaction.load(connection, schema, thresholds.transaction_age),
            job_checks.check_transactions,
        )

    async def _check(
        self, check: str, question: Awaitable[T], judge: Callable[[T], Iterable[Finding]] = lambda _: ()
    ) -> T | None:
        """Ask the server, judge the answer and return it; a failure becomes a finding."""
        try:
            async with asyncio.timeout(CHECK_WITHIN):
                answer = await question
        except TimeoutError:
            self._findings.append(
                Finding(
                    check, "info", f"not checked: no answer within {CHECK_WITHIN:.0f} seconds",
                    "The table is very large, or the server is overloaded.",
                    "Run the doctor again when there is less load.",
                )
            )  # fmt: skip
            return None
        except Exception as error:
            if not isinstance(error, GraphileWorkerError) and sqlstate_of(error) is None:
                raise
            self._findings.append(
                Finding(
                    check, "error", f"not checked: {message_of(error)}",
                    "The server refused the query.", "Deal with the other findings first.",
                )
            )  # fmt: skip
            return None
        self._findings += judge(answer)
        return answer
