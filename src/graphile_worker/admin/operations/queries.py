"""Operations: counting before the start, starting, stopping, listing. Their jobs are chosen in `choosing`.

`runner` does the work, step by step: each step chooses the next jobs and changes them in one transaction.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec

from ...database.connections.connection import Connection, Row
from ...database.sql import load
from ...database.statements.bulk_changes import READ, BulkChange
from ...history.audit import MAX_KEPT, Actor, audit_tables, record
from ...values.schema_name import SchemaName
from ...values.text import count
from ..answers import Count, Problem, not_found
from ..database import Database
from ..jobs import changing
from ..jobs.changing import ActionName, ActionValues
from ..jobs.filters import Filter
from ..security.redact import Redactor
from .choosing import Chosen, Position, walk_for

OperationState = Literal["running", "stopping", "stopped", "done", "failed"]
Stage = Literal["all", "canary", "watching", "rest", "settling"]
"""`all` works through the jobs. A careful retry sends some first (`canary`), waits for them (`watching`),
sends the others (`rest`) and waits for those (`settling`)."""
OperationAction = Literal[ActionName, "undo"]
Rate = Annotated[float, msgspec.Meta(ge=0.1, le=100_000)]
CAREFUL_RATE = 50.0
"""Jobs per second of a careful retry, if nothing else is wanted."""


def typed_number(text: str) -> int | None:
    """A number as people type it: `4,342`."""
    digits = text.replace(",", "").replace(".", "").strip()
    return int(digits) if digits.isdecimal() and len(digits) <= 15 else None


class ChangeOfMany(ActionValues, frozen=True, kw_only=True):
    """A change to many jobs: how fast, and whether it was confirmed."""

    rate: Rate | None = None
    """Jobs per second at most."""
    dry_run: bool = False
    """Only say what would happen."""
    confirm: int | None = None
    """The number of jobs as the dry run said it; needed for more than 1,000 jobs, and in production."""
    typed: Annotated[str, msgspec.Meta(max_length=40)] = ""
    """The same, as a person typed it."""

    @property
    def number(self) -> int | None:
        """The number of jobs that was confirmed."""
        return self.confirm if self.confirm is not None else typed_number(self.typed)


class OperationRequest(ChangeOfMany, frozen=True, kw_only=True):
    """A change to all jobs that match a filter."""

    action: ActionName
    filter: Annotated[str, msgspec.Meta(max_length=2000)] = ""
    """As in the search box of the page Jobs: `state:failed task:send_email`."""
    everything: bool = False
    """Needed with an empty filter, which matches all jobs."""


class OperationForm(OperationRequest, frozen=True, kw_only=True):
    """The same, as a page asks for it. Its filter is called `q`, as on the page Jobs."""

    action: ActionName = "retry"
    q: Annotated[str, msgspec.Meta(max_length=2000)] = ""
    back: Annotated[str, msgspec.Meta(max_length=4000)] = ""


class OperationsQuery(msgspec.Struct, frozen=True):
    """One page of the operations, the latest first."""

    after: int | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=200)] = 50


class CarefulRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A careful retry of an error group: some jobs first, then the others, until one fails."""

    canary: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1
    """How many jobs to retry first."""
    rate: Rate = CAREFUL_RATE
    """Jobs per second after they have succeeded."""
    confirm: int | None = None
    """The number of jobs; needed for more than 1,000 jobs, and in production."""
    dry_run: bool = False
    """Only say what would happen."""


class Example(msgspec.Struct, frozen=True):
    """A job that would be changed."""

    id: int
    task_identifier: str
    state: str


class DryRun(msgspec.Struct, frozen=True, kw_only=True):
    """What an operation would do."""

    action: OperationAction
    target: str
    count: Count
    """How many jobs match."""
    running: int = 0
    """How many of those counted are running, and would be skipped."""
    examples: list[Example] = []
    seconds: float | None = None
    """How long it would take, roughly."""
    needs_confirmation: bool = False
    """Whether `confirm` must repeat the number."""
    can_undo: bool = True
    note: str = ""
    """Of an error group: which of its jobs cannot be found, and why."""
    up_to: int = 0


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """A change to many jobs, and how far it is."""

    id: int
    action: OperationAction
    target: str
    state: OperationState
    stage: Stage
    expected: Count
    changed: int
    skipped: int
    succeeded: int
    """Of a careful retry: jobs that completed since."""
    gone: int
    """Of a careful retry: jobs that are no longer there and did not complete: deleted, cancelled, expired."""
    waiting: int
    """Of a careful retry: jobs whose outcome is not known yet."""
    rate: float | None
    note: str | None
    """Why it stopped or failed."""
    values: dict[str, Any]
    chosen: Chosen
    who: str
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    undo: str | None
    """The id in the audit, for `POST /audit/{id}/undo`; None if it cannot be undone."""
    is_waiting_for_runner: bool = False
    """The dashboard process that ran it is gone; another one will continue it soon."""
    message: str = ""
    """The numbers at the end: how many jobs were changed, and why others were not."""

    @property
    def is_active(self) -> bool:
        return self.finished_at is None

    @property
    def is_careful(self) -> bool:
        return self.stage != "all"

    @property
    def is_complete(self) -> bool:
        """Whether it ended with all jobs changed that were there."""
        return self.state == "done" and not self.skipped

    @property
    def share(self) -> float:
        """How much of it is done, from 0 to 1."""
        if self.state == "done":
            return 1.0
        return min(1.0, (self.changed + self.skipped) / max(1, self.expected.value))

    @property
    def per_second(self) -> float:
        """Jobs per second on average."""
        seconds = ((self.finished_at or self.updated_at) - self.created_at).total_seconds()
        return self.changed / seconds if seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """How long it goes on at this pace; None if that is not known."""
        if not self.is_active or not self.per_second or self.stage in ("canary", "watching", "settling"):
            return None
        return max(0, self.expected.value - self.changed - self.skipped) / self.per_second


EXAMPLES = 5
CONFIRM_ABOVE = 1_000
"""Jobs; an operation on more needs the number typed."""
CONFIRM_WITHIN = 0.1
"""How far the number of jobs may have changed since it was typed."""
PER_SECOND = 5_000.0
"""Jobs that a step changes per second, roughly, without a rate."""
LEASE = 10.0
"""Seconds after which another dashboard may take over. Whoever has it renews it every few seconds; a step
that takes longer holds the lock of the row."""
LATE = 5.0
"""Seconds without a renewal after which an operation counts as waiting for its runner."""
MISSING = Problem(
    409,
    "Operations need tables of their own",
    "This schema has none of the tables that keep the progress of an operation. To create them, run as the "
    "owner of the schema: graphile-worker migrate. Up to 200 jobs can be changed without them.",
)


# -- before the start --------------------------------------------------------------------------------------


def chosen_by(
    request: OperationRequest, redactor: Redactor, *, hides_secrets: bool, may_delete: bool
) -> Chosen:
    """The jobs that a request names, and that the person may change in this way."""
    filter = Filter.parse(request.filter)
    only_running = request.action == "cancel" and not may_delete
    if only_running and filter.get("state") != "running":
        raise Problem(
            403, "You may not do this",
            "To cancel jobs that do not run deletes them, which needs the permission jobs.delete. Add "
            "state:running to the filter.",
        )  # fmt: skip
    shown = filter.redacted(redactor).text
    return Chosen(
        filter=filter.text, shown=shown if shown != filter.text else None, hides_secrets=hides_secrets,
        only_running=only_running,
    )  # fmt: skip


async def dry_run(database: Database, request: OperationRequest, chosen: Chosen, environment: str) -> DryRun:
    """Count the jobs that match, as far as one bounded step reads, and name a few."""
    changing.check_values(request.action, request)
    if not request.filter.strip() and not request.everything:
        raise Problem(
            400,
            "The filter is empty",
            "It matches every job. To change all jobs, set everything; else name a condition.",
        )
    walk = walk_for(database.schema, chosen, BulkChange("bulk_look"), Position(0, 2**63 - 1), READ)
    async with database.read() as connection:
        await connection.fetchrow(load("manage/read_by_indexes", database.schema))
        await walk.begin(connection)
        ids = [] if walk.report.is_complete else await walk.step(connection)
        found = [await database.utils.jobs.get(id, connection=connection) for id in ids[:EXAMPLES]]
    report = walk.report
    jobs = Count(report.changed)
    if not report.is_complete:
        jobs = _projected(report.changed, report.last_id, report.up_to)
    examples = [Example(job.id, job.task_identifier, job.state) for job in found if job is not None]
    return DryRun(
        action=request.action,
        target=" ".join((chosen.shown or chosen.filter or "").split()) or "all jobs",
        count=jobs,
        running=0 if request.action == "cancel" else report.asked,
        examples=examples,
        seconds=seconds_for(jobs.value, request.rate),
        needs_confirmation=needs_confirmation(jobs, environment),
        can_undo=request.action != "add_again" and jobs.value <= MAX_KEPT,
        up_to=report.up_to,
    )


def _projected(found: int, last_id: int, up_to: int) -> Count:
    """What was found in a part of the ids says roughly how many there are."""
    if found == 0 or last_id <= 0:
        return Count(found, "at_least")
    return Count(round(found * up_to / last_id), "estimate")


def seconds_for(jobs: int, rate: float | None) -> float:
    """How long a change to this many jobs takes, roughly."""
    return jobs / (PER_SECOND if rate is None else min(rate, PER_SECOND))


def needs_confirmation(count: Count, environment: str) -> bool:
    """Whether the number must be typed."""
    return count.value > CONFIRM_ABOVE or environment.lower() in ("production", "prod", "live")


def check_confirmation(found: DryRun, confirm: int | None) -> None:
    """Refuse unless the number was repeated, or if it is no longer true."""
    if not found.needs_confirmation:
        return
    if confirm is None:
        raise Problem(
            409,
            "Repeat the number of jobs to confirm",
            f"This would change {found.count} jobs. Type the number; in the API, send it as `confirm`.",
            count=found.count.value,
        )
    difference = abs(found.count.value - confirm)
    if difference > max(CONFIRM_WITHIN * found.count.value, 0):
        raise Problem(
            409,
            "The number of jobs has changed",
            f"The number that was typed is {confirm:,}, but {found.count} jobs match now.",
            count=found.count.value,
        )


# -- starting and stopping ---------------------------------------------------------------------------------


async def start(
    database: Database, actor: Actor, request: OperationRequest, chosen: Chosen, environment: str
) -> Operation:
    """Count again, check the confirmation, and begin. The runner of the dashboard does the rest."""
    await require_tables(database)
    found = await dry_run(database, request, chosen, environment)
    check_confirmation(found, request.number)
    return await begin(database, actor, chosen, found, request, rate=request.rate)


async def begin(
    database: Database,
    actor: Actor,
    chosen: Chosen,
    found: DryRun,
    values: ActionValues,
    *,
    rate: float | None = None,
    stage: Stage = "all",
    more: dict[str, Any] | None = None,
    undoes: int | None = None,
) -> Operation:
    """Add the operation and its row in the audit, and start it in this process."""
    given = values.given | (more or {})
    name = "retry_carefully" if stage == "canary" else found.action
    runner, expected = database.operations, found.count
    async with database.write() as connection:
        audit_id = await record(
            connection, database.schema, actor, name, target=found.target,
            details={**given, "rate": rate, "expected": expected.value},
        )  # fmt: skip
        if audit_id is None:
            raise MISSING
        if undoes is not None:
            await mark_undone(connection, database.schema, undoes, audit_id)
        up_to = found.up_to or await connection.fetchval(load("admin/highest_id", database.schema)) or 0
        operation_id: int = await connection.fetchval(
            load("admin/start_operation", database.schema),
            audit_id, found.action, msgspec.json.encode(given).decode(), msgspec.json.encode(chosen).decode(),
            found.target, rate, stage, expected.value, expected.kind, up_to, runner.name, LEASE,
        )  # fmt: skip
    runner.start(operation_id)
    return await get(database, operation_id)


async def mark_undone(connection: Connection, schema: SchemaName, audit_id: int, undo_id: int) -> None:
    """Raises a Problem if another request was faster."""
    if await connection.fetchval(load("admin/mark_undone", schema), audit_id, undo_id) is None:
        raise Problem(409, "It has been undone already", "Another request was faster.")


async def stop(database: Database, actor: Actor, operation_id: int) -> Operation:
    """Stop after the current step."""
    await require_tables(database)
    found = await get(database, operation_id)
    if not found.is_active:
        raise Problem(409, "The operation has ended", f"Its state is {found.state}.")
    async with database.write() as connection:
        await connection.fetchval(load("admin/stop_operation", database.schema), operation_id)
        await record(
            connection, database.schema, actor, "stop_operation",
            target=f"operation {operation_id}", operation_id=operation_id,
        )  # fmt: skip
    database.operations.wake(operation_id)
    await database.operations.adopt()
    return await get(database, operation_id)


# -- reading -----------------------------------------------------------------------------------------------


async def get(database: Database, operation_id: int) -> Operation:
    async with database.read() as connection:
        if not (await audit_tables(connection, database.schema)).may_read:
            raise not_found("operation")
        row = await connection.fetchrow(load("admin/get_operation", database.schema), operation_id)
    if row is None:
        raise not_found("operation")
    return _seen(database, row)


def _seen(database: Database, row: Row) -> Operation:
    """Called when a person looks: if no dashboard carries it out any more, this one goes on."""
    found = operation_from(row)
    if not found.is_waiting_for_runner or database.operations.has(found.id):
        return msgspec.structs.replace(found, is_waiting_for_runner=False)
    database.operations.adopt_later()
    return found


async def latest(database: Database, *, before: int | None = None, limit: int = 50) -> list[Operation] | None:
    """The latest operations; None where the table is missing."""
    async with database.read() as connection:
        if not (await audit_tables(connection, database.schema)).may_read:
            return None
        rows = await connection.fetch(load("admin/list_operations", database.schema), before, limit)
    return [_seen(database, row) for row in rows]


COLUMNS = (
    "id", "action", "target", "state", "stage", "changed", "skipped", "succeeded", "rate", "created_at",
    "updated_at", "finished_at",
)  # fmt: skip
"""What an operation shows as it is in the database."""


def operation_from(row: Row) -> Operation:
    return Operation(
        **{name: row[name] for name in COLUMNS},
        expected=Count(row["expected"], row["expected_kind"]),
        gone=0 if row["stage"] == "all" else row["changed"] - row["succeeded"] - len(row["watched"]),
        waiting=len(row["watched"]),
        note=Redactor().optional_text(row["note"]),
        values=msgspec.json.decode(Redactor().json(row["arguments"])),
        chosen=_without_secrets(msgspec.json.decode(row["chosen"], type=Chosen)),
        who=row["who"] or "",
        undo=str(row["audit_id"]) if _can_undo(row) else None,
        is_waiting_for_runner=row["finished_at"] is None and _is_late(row),
        message=_in_words(row),
    )


def _is_late(row: Row) -> bool:
    """Whether nobody has it, or whoever has it did not renew the lease in time."""
    if row["runner"] is None or row["lease_until"] is None:
        return True
    left: timedelta = row["lease_until"] - row["read_at"]
    return left.total_seconds() < LEASE - LATE


def _in_words(row: Row) -> str:
    """The numbers at the end."""
    if row["finished_at"] is None:
        return ""
    changed, skipped, expected = row["changed"], row["skipped"], row["expected"]
    if row["action"] == "undo":
        left = f"; {skipped:,} could not be put back: changed, running or gone since" if skipped else ""
        return f"{changed:,} of {count(changed + skipped, 'job')} put back{left}."
    is_exact = row["expected_kind"] == "exact" and row["state"] == "done"
    others = max(0, expected - changed - skipped) if is_exact else 0
    text = f"{changed:,} of {count(changed + skipped + others, 'job')} changed"
    if skipped:
        text += f"; {skipped:,} {'was' if skipped == 1 else 'were'} running or locked"
    if others:
        text += f"; {others:,} had changed or gone before {'its' if others == 1 else 'their'} turn"
    return text + "."


def _without_secrets(chosen: Chosen) -> Chosen:
    if chosen.shown is None:
        return chosen
    return msgspec.structs.replace(chosen, filter=chosen.shown, shown=None)


def _can_undo(row: Row) -> bool:
    return (
        row["finished_at"] is not None
        and row["kept"] > 0
        and row["undone_by"] is None
        and row["action"] != "undo"
    )


async def require_tables(database: Database) -> None:
    async with database.read() as connection:
        tables = await audit_tables(connection, database.schema)
    if not tables.exist:
        raise MISSING
    if not tables.may_write:
        raise Problem(
            403,
            "The database refuses this",
            "The role of this dashboard may not write to the tables of operations. Connect as the owner of "
            "the schema.",
        )
