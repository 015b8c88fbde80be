"""OperationRunner: carries out the operations of one database, also those that an earlier process began.

All state is in the database. A process that carries out an operation has a lease on its row, which each step
renews; when the process ends, another one takes over after the lease. Without an operation under way the
runner sends no statement.

A step is one transaction that changes the next jobs and notes how far it has come. It holds the lock of the
operation's row and checks that this dashboard still has the lease. So each job is changed once, however often
a dashboard is restarted and however many there are.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ...database.connections import sqlstates
from ...database.connections.connection import Connection, Row
from ...database.connections.errors import explained, sqlstate_of
from ...database.connections.retry import is_conflict, is_retryable, may_pass
from ...database.sql import load
from ...history.audit import MAX_KEPT, audit_tables, complete_record, purge_audit
from ..database import HISTORY, STEP_WITHIN, Database, is_outage, own_tables
from ..jobs.changing import ACTIONS, ActionName, ActionValues, Standing, change, lock_jobs
from ..security.redact import Redactor
from . import undo
from .choosing import Choice, Chosen, Position, choose
from .queries import LEASE

logger = logging.getLogger("graphile_worker.admin")

RETRY = 2.0
"""Seconds until a step is repeated that failed because of the connection or of a lock."""
MOST_RETRIES = 5
"""Of a step that the database refuses; a lost connection is waited for without end."""
SHRINK = 5
"""A step that took too long, or too much memory, is repeated with a fifth of its jobs."""
QUICK = STEP_WITHIN / 1000 / 4
"""Seconds; after a step that took less, the next one may have twice as many jobs."""
RENEW = 3.0
"""Seconds between two renewals of the lease while an operation waits."""
SOON = 0.2
"""Seconds after the end of a lease, when another process takes over."""
DOWN = 5.0
"""Seconds until a database that did not answer is asked again for operations to take over."""
PATIENCE = 15.0
"""Seconds that an operation waits in all for rows that other transactions have locked."""


class OperationRunner:
    """The operations that this process carries out for one database."""

    def __init__(self, database: Database) -> None:
        self.name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self.on_change: Callable[[int], Any] = lambda operation_id: None
        """Called after each step, for live updates."""
        self._database = database
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._woken: dict[int, asyncio.Event] = {}
        self._later: asyncio.Task[None] | None = None
        self._is_closed = False

    def start(self, operation_id: int) -> None:
        """Go on with an operation that this process has the lease on."""
        if self._is_closed or operation_id in self._tasks:
            return
        self._woken[operation_id] = asyncio.Event()
        task = asyncio.create_task(self._run(operation_id), name=f"operation {operation_id}")
        self._tasks[operation_id] = task
        task.add_done_callback(lambda _: self._forget(operation_id))

    def has(self, operation_id: int) -> bool:
        """Whether this process carries it out."""
        return operation_id in self._tasks

    def wake(self, operation_id: int) -> None:
        """Make the next step at once: a person asked for a stop."""
        if operation_id in self._woken:
            self._woken[operation_id].set()

    async def adopt(self) -> None:
        """Take over operations whose process is gone, and look again when the leases of others end."""
        database = self._database
        if database.is_read_only or self._is_closed:
            return
        async with database.read() as connection:
            tables = await audit_tables(connection, database.schema)
            if not (tables.may_read and tables.may_write):
                return
            rows = await connection.fetch(load("admin/active_operations", database.schema))
        leases = [
            left
            for row in rows
            if row["id"] not in self._tasks
            if (left := await self._claim(row)) is not None
        ]
        if leases:
            self.adopt_later(min(leases) + SOON)

    async def _claim(self, row: Row) -> float | None:
        """Take over one operation; returns the seconds that the lease of another process lasts."""
        database = self._database
        try:
            async with database.write() as connection:
                claim = load("admin/claim_operation", database.schema)
                if await connection.fetchval(claim, row["id"], self.name, LEASE) is not None:
                    self.start(row["id"])
                    return None
        except Exception as error:
            if sqlstate_of(error) != sqlstates.LOCK_NOT_AVAILABLE:  # its process is just making a step
                raise
        return (
            max(0.0, (row["lease_until"] - row["read_at"]).total_seconds()) if row["lease_until"] else LEASE
        )

    def adopt_later(self, seconds: float = 0.0) -> None:
        """The same in the background."""
        if self._is_closed or self._database.is_read_only:
            return
        if self._later is not None and self._later is not asyncio.current_task():
            if seconds:
                return  # a sooner look schedules the next one
            self._later.cancel()
        self._later = asyncio.create_task(self._adopt_after(seconds), name="adopt operations")

    async def _adopt_after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.adopt_if_possible()
        if self._later is asyncio.current_task():
            self._later = None

    async def adopt_if_possible(self) -> None:
        """The same without errors: the schema may be missing, or the database may not answer."""
        try:
            await self.adopt()
            if not self._database.is_read_only:  # where no Python worker does it
                async with self._database.write() as connection:
                    await purge_audit(connection, self._database.schema)
        except Exception as error:
            logger.debug("could not take over operations: %s", explained(error))
            if is_outage(error):
                self.adopt_later(DOWN)

    async def aclose(self) -> None:
        """Stop after the current steps; another dashboard, or the next start, goes on."""
        self._is_closed = True
        tasks = list(self._tasks.values())
        waiting = [] if self._later is None else [self._later]
        for task in (*tasks, *waiting):
            task.cancel()
        await asyncio.gather(*tasks, *waiting, return_exceptions=True)
        if not tasks:
            return
        try:
            async with self._database.write() as connection:
                await connection.execute(load("admin/release_operations", self._database.schema), self.name)
        except Exception as error:
            logger.debug("could not release leases, which expire soon: %s", explained(error))

    def _forget(self, operation_id: int) -> None:
        self._tasks.pop(operation_id, None)
        self._woken.pop(operation_id, None)

    async def _run(self, operation_id: int) -> None:
        failures, held_up, most = 0, 0.0, STEP
        while not self._is_closed:
            began = time.monotonic()
            try:
                made = await step(
                    self._database, operation_id, self.name, most=most, waits_for_locks=held_up < PATIENCE
                )
                failures = 0
                held_up += made.wait if made and made.is_held_up and not made.changed else 0.0
                if time.monotonic() - began < QUICK:
                    most = min(2 * most, STEP)
            except Exception as error:
                failures += 0 if is_outage(error) else 1
                is_too_much = may_pass(error)
                may_repeat = is_too_much or is_retryable(error) or is_conflict(error)
                if failures > (MOST_RETRIES if may_repeat else 0):
                    logger.exception("operation %s has failed", operation_id)
                    await self._fail(operation_id, error)
                    return
                logger.debug("operation %s: %s; retrying", operation_id, explained(error))
                most = max(most // SHRINK, 1) if is_too_much else most
                await self._sleep(operation_id, RETRY, renew=False)
                continue
            self.on_change(operation_id)
            if made is None or made.state is not None:
                return
            await self._sleep(operation_id, made.wait)

    async def _sleep(self, operation_id: int, seconds: float, *, renew: bool = True) -> None:
        """Wait, keeping the lease, until the time is over or a person asks for a stop."""
        woken = self._woken[operation_id]
        while seconds > 0 and not woken.is_set():
            part = min(seconds, RENEW)
            seconds -= part
            try:
                await asyncio.wait_for(woken.wait(), part)
            except TimeoutError:
                if renew and seconds > 0:
                    await self._renew(operation_id)
        woken.clear()

    async def _renew(self, operation_id: int) -> None:
        try:
            async with self._database.write() as connection:
                lock = load("admin/lock_operation", self._database.schema)
                await connection.fetchval(lock, operation_id, self.name, LEASE)
        except Exception as error:
            logger.debug("could not renew the lease of operation %s: %s", operation_id, explained(error))

    async def _fail(self, operation_id: int, error: Exception) -> None:
        try:
            async with self._database.write() as connection:
                end = load("admin/fail_operation", self._database.schema)
                await connection.execute(end, operation_id, self.name, explained(error)[:1000])
        except Exception as again:
            logger.warning("could not finish operation %s: %s", operation_id, explained(again))
        self.on_change(operation_id)


# -- steps ---------------------------------------------------------------------------------------------------

STEP = 1_000
"""Jobs of one step."""
MOST_WATCHED = 1_000
"""Retried jobs without an outcome, at which a careful retry waits for workers."""
TRY_AGAIN = 0.25
"""Seconds until a job is tried again whose row was locked."""
LOOK_EVERY = 1.0
"""Seconds between two looks at jobs that were retried."""


class Step(msgspec.Struct):
    """What a step did, and when the next one is due."""

    last_id: int
    stage: str
    watched: list[int]
    most: int = STEP
    """How many jobs it may change."""
    changed: int = 0
    skipped: int = 0
    succeeded: int = 0
    kept: int = 0
    state: str | None = None
    """Of the operation, if it ends with this step."""
    note: str | None = None
    wait: float = 0.0
    """Seconds until the next step."""
    waits_for_locks: bool = True
    is_held_up: bool = False
    """The next job is locked by another transaction."""


async def step(
    database: Database, operation_id: int, runner: str, *, most: int = STEP, waits_for_locks: bool = True
) -> Step | None:
    """Make the next step, with up to `most` jobs.

    It ends before a job that another transaction has locked, or skips such jobs. None if the
    operation has ended, or another dashboard has it.
    """
    async with database.write(within=STEP_WITHIN) as connection:
        schema = database.schema
        mine = await connection.fetchval(load("admin/lock_operation", schema), operation_id, runner, LEASE)
        row = await connection.fetchrow(load("admin/get_operation", schema), operation_id)
        if mine is None or row is None:
            return None
        done = Step(row["last_id"], row["stage"], list(row["watched"]), most, waits_for_locks=waits_for_locks)
        if row["state"] == "stopping":
            done.state = "stopped"
            done.note = "Stopped by a person."
        elif row["action"] == "undo":
            await _undo_some(connection, database, row, done)
        else:
            await _STAGES[row["stage"]](connection, database, row, done)
        await connection.execute(
            load("admin/advance_operation", schema),
            operation_id, done.last_id, done.changed, done.skipped, done.succeeded, done.watched,
            done.kept, done.stage, done.state, done.note,
        )  # fmt: skip
        if done.changed:
            await complete_record(connection, schema, row["audit_id"], jobs=done.changed)
        return done


# -- all jobs ----------------------------------------------------------------------------------------------


async def _all(connection: Connection, database: Database, row: Row, done: Step) -> None:
    choice = await _change_next(connection, database, row, done, _size(row, done))
    if choice.is_last:
        done.state = "done"


def may_change(chosen: Chosen, action: ActionName, job: Standing) -> bool:
    """Whether a job that was chosen is still one to change, now that it is locked."""
    if job.state == "running":
        return ACTIONS[action].takes_running
    return not chosen.only_running and (chosen.fingerprint is None or job.attempts > 0)


async def _change_next(connection: Connection, database: Database, row: Row, done: Step, size: int) -> Choice:
    """Change the next jobs, and note where the step after it starts."""
    chosen = msgspec.json.decode(row["chosen"], type=Chosen)
    action: ActionName = row["action"]
    begin = Position(row["last_id"], row["up_to"], row["created_at"])
    choice = await choose(connection, database.schema, chosen, action, begin, size)
    found, busy = await lock_jobs(connection, database.schema, choice.ids)
    choice = _before_locked(choice, sorted({*choice.locked, *busy}), done)
    jobs = [
        found[job_id]
        for job_id in sorted({*choice.ids} & found.keys())
        if may_change(chosen, action, found[job_id])
    ]
    audit_id = await _audit_id_for(connection, database, row, len(jobs))
    values = msgspec.json.decode(row["arguments"], type=ActionValues)
    made = await change(
        connection, database.utils, action, values, jobs, audit_id=audit_id, who=row["who"] or ""
    )
    done.last_id = choice.position.last_id
    done.changed += len(made.ids)
    done.skipped += len(choice.running) + len({*choice.ids, *choice.locked} - {*made.ids})
    done.kept += made.kept
    done.watched = [*done.watched, *made.ids] if row["stage"] != "all" else []
    if row["rate"] is not None and made.ids:
        done.wait = len(made.ids) / row["rate"]
    elif done.is_held_up:
        done.wait = TRY_AGAIN
    return choice


def _before_locked(choice: Choice, locked: Sequence[int], done: Step) -> Choice:
    """End the step before the first job whose row is locked: the next one tries it again."""
    if not locked or not done.waits_for_locks:
        return choice
    done.is_held_up, first = True, locked[0]
    return msgspec.structs.replace(
        choice,
        ids=[job_id for job_id in choice.ids if job_id < first],
        running=[job_id for job_id in choice.running if job_id < first],
        locked=[],
        position=msgspec.structs.replace(choice.position, last_id=first - 1),
        is_last=False,
    )


async def _audit_id_for(connection: Connection, database: Database, row: Row, jobs: int) -> int | None:
    """Where to keep the jobs as they were; None once there are too many for an undo."""
    if row["kept"] == 0 and row["changed"] > 0:
        return None
    if row["changed"] + jobs <= MAX_KEPT:
        audit_id: int = row["audit_id"]
        return audit_id
    await connection.execute(load("admin/drop_before", database.schema), row["audit_id"])
    await connection.execute(load("admin/forget_kept", database.schema), row["id"])
    return None


def _size(row: Row, done: Step) -> int:
    rate = row["rate"]
    return done.most if rate is None else max(1, min(done.most, int(rate)))


# -- a careful retry -----------------------------------------------------------------------------------------


async def _canary(connection: Connection, database: Database, row: Row, done: Step) -> None:
    """Retry some jobs."""
    wanted = int(msgspec.json.decode(row["arguments"]).get("canary", 1))
    choice = await _change_next(connection, database, row, done, wanted)
    done.wait = LOOK_EVERY
    if len(done.watched) >= wanted or choice.is_last:
        done.stage = "watching" if done.watched else "settling"  # no job is left
    else:
        done.wait = TRY_AGAIN if done.is_held_up else 0.0


async def _watching(connection: Connection, database: Database, row: Row, done: Step) -> None:
    """Wait for the outcome of the first jobs."""
    await _look(connection, database, row, done)
    done.wait = LOOK_EVERY
    if not done.watched and done.state is None:
        has_proof = row["succeeded"] + done.succeeded > 0  # else the job is gone: send another
        done.stage, done.wait = "rest" if has_proof else "canary", 0.0


async def _rest(connection: Connection, database: Database, row: Row, done: Step) -> None:
    """Retry the others, as long as none fails and workers keep up."""
    await _look(connection, database, row, done)
    if done.state is not None or len(done.watched) >= MOST_WATCHED:
        done.wait = LOOK_EVERY
        return
    choice = await _change_next(connection, database, row, done, _size(row, done))
    if choice.is_last:
        done.stage = "settling"


async def _settling(connection: Connection, database: Database, row: Row, done: Step) -> None:
    """Wait for the outcome of the last jobs."""
    await _look(connection, database, row, done)
    done.wait = LOOK_EVERY
    if not done.watched and done.state is None:
        done.state = "done"


async def _look(connection: Connection, database: Database, row: Row, done: Step) -> None:
    """See what became of retried jobs; the first failure stops it all.

    Workers delete jobs that complete, so a job that is no longer there succeeded, unless something says
    otherwise: then it is gone, and neither proves nor disproves the fix.
    """
    if not done.watched:
        return
    schema = database.schema
    rows = await connection.fetch(load("admin/watched_jobs", schema), done.watched)
    left = [job["id"] for job in rows]
    failed = [job for job in rows if job["has_failed"]]
    missing = sorted(set(done.watched) - set(left))
    gone: set[int] = set()
    if missing:
        deleted = await connection.fetch(load("admin/deleted_by_hand", schema), missing, row["audit_id"])
        gone = {each["job_id"] for each in deleted}
    if missing and await own_tables(connection, schema) >= HISTORY:
        statement = load("admin/other_finished_jobs", schema)
        for end in await connection.fetch(statement, missing, row["created_at"]):
            gone.add(end["id"])
            failed += [end] if end["state"] == "failed" else []
    done.succeeded += len(missing) - len(gone)
    done.watched = left
    if failed:
        done.state = "stopped"
        done.note = _why_stopped(row, failed)


def _why_stopped(row: Row, failed: Sequence[Row]) -> str:
    first = failed[0]
    lines = Redactor().text(str(first["last_error"] or "")).strip().splitlines()
    which = "The first job" if row["stage"] == "watching" else "A retried job"
    more = f" ({len(failed) - 1:,} more failed too)" if len(failed) > 1 else ""
    return f"{which}, {first['id']}, failed again{more}: {lines[0][:500] if lines else 'no message'}"


# -- an undo -------------------------------------------------------------------------------------------------


async def _undo_some(connection: Connection, database: Database, row: Row, done: Step) -> None:
    chosen = msgspec.json.decode(row["chosen"], type=Chosen)
    found = await undo.undo_step(
        connection, database.schema, chosen.audit_id or 0, row["last_id"], most=done.most
    )
    done.last_id = found.last_id
    done.changed, done.skipped = len(found.restored), len(found.left)
    if found.is_last:
        done.state = "done"


_STAGES = {"all": _all, "canary": _canary, "watching": _watching, "rest": _rest, "settling": _settling}
