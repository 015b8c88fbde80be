"""One change to jobs that are named by id, in the caller's transaction.

Actions and the steps of operations both end here, in the functions of the client.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec

from ...client import WorkerUtils
from ...database.connections import sqlstates
from ...database.connections.connection import Connection
from ...database.connections.errors import sqlstate_of
from ...database.sql import load
from ...database.statements.manage_jobs import CancelReport
from ...history.audit import Actor, complete_record, finalize_snapshot, record, snapshot_added, snapshot_jobs
from ...values.attempts import EXPIRES_FLAG
from ...values.spec import SMALLINT_MAX, JobSpec
from ...values.text import count
from ..answers import Problem, Skipped
from ..database import Database
from ..security.identity import PERMISSION_FOR

ActionName = Literal["run_now", "retry", "reschedule", "give_up", "delete", "cancel", "add_again"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAction:
    """What people can do with jobs: what pages say of it, and how it behaves."""

    done: str
    """The verb of the sentence that says what happened."""
    question: str = ""
    """What it does, before it is confirmed."""
    undo: str = ""
    """What there is to know of its undo."""
    key: str = ""
    """On the keyboard."""
    is_at_once: bool = False
    """Whether a few jobs need no question: it can be undone, and does no harm."""
    is_on_selection: bool = True
    """Whether the list of jobs has a button for it."""
    is_danger: bool = False
    asks_reason: bool = False
    takes_running: bool = False
    wakes: bool = False
    """Whether jobs may be ready afterwards, so that workers must be notified."""


ACTIONS: dict[ActionName, JobAction] = {
    "run_now": JobAction(
        done="Started", question="They can start at once. Jobs without attempts are retried.",
        is_at_once=True, is_on_selection=False, wakes=True,
    ),
    "retry": JobAction(
        done="Retried", question="They can start at once, with all their attempts.", key="r",
        is_at_once=True, wakes=True,
    ),
    "reschedule": JobAction(done="Rescheduled", key="e", wakes=True),
    "give_up": JobAction(
        done="Gave up", question="They fail permanently and stay in the list of failed jobs.",
        undo="This can be undone for 24 hours.", is_danger=True, asks_reason=True,
    ),
    "cancel": JobAction(
        done="Cancelled",
        question="Jobs that do not run are deleted. Workers are asked to end others, which cannot be undone.",
        is_danger=True, asks_reason=True, takes_running=True,
    ),
    "delete": JobAction(
        done="Deleted", question="They are deleted without being run.",
        undo="This can be undone for 24 hours; they get new ids then.", is_danger=True, asks_reason=True,
    ),
    "add_again": JobAction(
        done="Added again", question="New jobs are added with the same values, without a job key.",
        is_at_once=True, is_on_selection=False, takes_running=True,
    ),
}  # fmt: skip
ANY_ACTION = tuple(dict.fromkeys(PERMISSION_FOR.values()))
"""The permissions of all actions, for routes that serve several."""
MAX_IDS = 200
"""Jobs of one action; more are an operation."""

Smallint = Annotated[int, msgspec.Meta(ge=-32768, le=32767)]

Attempts = Annotated[int, msgspec.Meta(ge=0, le=32767)]

Reason = Annotated[str, msgspec.Meta(max_length=500)]


class ActionValues(msgspec.Struct, frozen=True, kw_only=True):
    """What an action needs besides the jobs; each uses only some of it."""

    run_at: datetime | None = None
    """reschedule: when to run; without a time zone, UTC."""
    priority: Smallint | None = None
    """reschedule."""
    attempts: Attempts | None = None
    """reschedule: the number of attempts made so far."""
    max_attempts: Annotated[int, msgspec.Meta(ge=1, le=32767)] | None = None
    """reschedule."""
    one_more: bool = False
    """retry: allow one attempt more, in place of all of them again."""
    reason: Reason = ""
    """give_up and cancel: stored with the jobs."""

    @property
    def changes(self) -> dict[str, datetime | int]:
        """What a reschedule is to change."""
        names = ("run_at", "priority", "attempts", "max_attempts")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    @property
    def given(self) -> dict[str, object]:
        """What was given besides the jobs, for the audit."""
        more = {"one_more": self.one_more, "reason": self.reason}
        return {**self.changes, **{name: value for name, value in more.items() if value}}


class ActionRequest(ActionValues, frozen=True, kw_only=True):
    """An action on up to 200 jobs."""

    action: ActionName
    ids: Annotated[list[int], msgspec.Meta(max_length=MAX_IDS)] = []
    state: Literal["ready", "scheduled", "failed"] | None = None
    """Only jobs that are still in this state; others are skipped as changed."""
    back: str = ""
    """Of a form: the page to return to."""


class ActionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result for each job: every id is in `changed` or in `skipped`."""

    action: ActionName
    changed: list[int]
    skipped: list[Skipped] = []
    retried: list[int] = []
    """run_now: those of `changed` that had no attempts left, and got all of them again."""
    asked: list[int] = []
    """cancel: those of `changed` that are running; their workers were asked to end them."""
    added: list[int] = []
    """add_again: the ids of the new jobs."""
    undo: str | None = None
    """The id in the audit, for `POST /audit/{id}/undo`; None if it cannot be undone."""
    message: str = ""
    """What happened, in one sentence."""


NOW = timedelta(0)


class Standing(msgspec.Struct, frozen=True):
    """How a job stood when it was locked for a change."""

    id: int
    attempts: int
    max_attempts: int
    locked_by: str | None
    state: str

    @property
    def is_exhausted(self) -> bool:
        return self.attempts >= self.max_attempts


class Changed(msgspec.Struct):
    """What a change did."""

    ids: list[int] = []
    retried: list[int] = []
    asked: list[int] = []
    added: list[int] = []
    kept: int = 0
    """Jobs that an undo can put back."""
    problem: str | None = None
    """Why workers could not be asked to end their jobs."""


async def lock_jobs(
    connection: Connection, schema: Any, job_ids: Sequence[int]
) -> tuple[dict[int, Standing], set[int]]:
    """Lock the rows; returns how they stand, and the ids that other transactions are just changing."""
    ids = sorted(set(job_ids))
    try:
        async with connection.transaction():  # a savepoint
            rows = await connection.fetch(load("admin/lock_jobs", schema), ids)
        return {row["id"]: Standing(*row) for row in rows}, set()
    except Exception as error:
        if sqlstate_of(error) != sqlstates.LOCK_NOT_AVAILABLE:
            raise
    rows = await connection.fetch(load("admin/lock_free_jobs", schema), ids)
    locked = {row["id"]: Standing(*row) for row in rows}
    existing = await connection.fetch(load("admin/existing_jobs", schema), ids)
    return locked, {row["id"] for row in existing} - locked.keys()


async def change(
    connection: Connection,
    utils: WorkerUtils,
    action: ActionName,
    values: ActionValues,
    jobs: Sequence[Standing],
    *,
    audit_id: int | None,
    who: str,
) -> Changed:
    """Make the change to these jobs, which are locked; keep them as they were if there is an audit row."""
    making = _Change(connection, utils, values, jobs, who)
    ids, done = making.ids, making.done
    if not ids:
        return done
    if audit_id is not None and action != "add_again":
        await snapshot_jobs(connection, utils.schema, audit_id, ids)
    await _CHANGES[action](making)
    if audit_id is not None:
        if action == "add_again":
            await snapshot_added(connection, utils.schema, audit_id, done.added)
            await finalize_snapshot(connection, utils.schema, audit_id, [], done.added)
            done.kept = len(done.added)
        else:
            undoable = sorted(set(done.ids) - set(done.asked))
            await finalize_snapshot(connection, utils.schema, audit_id, ids, undoable)
            done.kept = len(undoable)
    if ACTIONS[action].wakes and done.ids:
        await connection.fetchval(load("add/announce_jobs", utils.schema), len(done.ids))
    return done


@dataclass(slots=True)
class _Change:
    """A change while it is made."""

    connection: Connection
    utils: WorkerUtils
    values: ActionValues
    jobs: Sequence[Standing]
    who: str
    done: Changed = field(default_factory=Changed)

    @property
    def ids(self) -> list[int]:
        return [job.id for job in self.jobs]

    async def reschedule(self, ids: Sequence[int], **values: Any) -> list[int]:
        """Returns the ids of those that were changed, which count as done."""
        found = await self.utils.reschedule_jobs(ids, connection=self.connection, **values)
        changed = [job.id for job in found]
        self.done.ids = sorted(self.done.ids + changed)
        return changed

    async def cancel(self, verb: str) -> CancelReport:
        return await self.utils.cancel_jobs(self.ids, reason=self.because(verb), connection=self.connection)

    def because(self, verb: str) -> str:
        """Who did it, and why."""
        return f"{verb} by {self.who}" + (f": {self.values.reason}" if self.values.reason else "")


async def _run_now(making: _Change) -> None:
    """A job without attempts would stay where it is: it is retried instead."""
    waiting = [job.id for job in making.jobs if not job.is_exhausted]
    exhausted = [job.id for job in making.jobs if job.is_exhausted]
    if waiting:
        await making.reschedule(waiting, run_at=NOW)
    if exhausted:
        making.done.retried += await making.reschedule(exhausted, run_at=NOW, attempts=0)


async def _retry(making: _Change) -> None:
    if not making.values.one_more:
        await making.reschedule(making.ids, run_at=NOW, attempts=0)
        return
    groups: defaultdict[tuple[int | None, int | None], list[int]] = defaultdict(list)
    for job in making.jobs:
        if not job.is_exhausted:
            groups[None, None].append(job.id)  # it has an attempt
        elif job.attempts < SMALLINT_MAX:
            groups[None, job.attempts + 1].append(job.id)
        else:
            groups[SMALLINT_MAX - 1, SMALLINT_MAX].append(job.id)
    for (attempts, most), ids in groups.items():
        await making.reschedule(ids, run_at=NOW, attempts=attempts, max_attempts=most)


async def _reschedule(making: _Change) -> None:
    values = making.values
    await making.reschedule(making.ids, **{**values.changes, "run_at": with_zone(values.run_at)})


async def _give_up(making: _Change) -> None:
    reason = making.because("Given up")
    found = await making.utils.permanently_fail_jobs(making.ids, reason, connection=making.connection)
    making.done.ids += [job.id for job in found]


async def _delete(making: _Change) -> None:
    """By cancelling, for jobs that do not run: those that are kept end as cancelled, not as completed."""
    report = await making.cancel("deleted")
    making.done.ids += [job.id for job in report.removed]


async def _cancel(making: _Change) -> None:
    report, done = await making.cancel("cancelled"), making.done
    done.asked += [job.id for job in report.asked]
    done.ids = sorted([job.id for job in report.removed] + done.asked)
    done.problem = report.problem


async def _add_again(making: _Change) -> None:
    specs = []
    for each in making.jobs:
        job = await making.utils.jobs.get(each.id, connection=making.connection)
        if job is None:
            continue
        making.done.ids.append(job.id)
        specs.append(
            JobSpec(
                job.task_identifier,
                msgspec.Raw(job.raw_payload.encode()),
                queue_name=job.queue_name,
                priority=job.priority,
                max_attempts=job.max_attempts,
                flags=[flag for flag in job.flags or () if not flag.startswith(EXPIRES_FLAG)] or None,
            )
        )
    added = await making.utils.add_jobs(specs, connection=making.connection)
    making.done.added = [job.id for job in added]


_CHANGES = {
    "run_now": _run_now,
    "retry": _retry,
    "reschedule": _reschedule,
    "give_up": _give_up,
    "delete": _delete,
    "cancel": _cancel,
    "add_again": _add_again,
}


def with_zone(time: datetime | None) -> datetime | None:
    """A time without a zone is UTC."""
    return time if time is None or time.tzinfo is not None else time.replace(tzinfo=UTC)


# -- actions by id ------------------------------------------------------------------------------------------

BUSY = "a worker or another transaction has locked its row at the moment; try again"
DELETES = "To cancel a job that does not run deletes it, which needs the permission jobs.delete."


async def act(database: Database, actor: Actor, request: ActionRequest, *, may_delete: bool) -> ActionAnswer:
    """Do it, as far as the jobs allow. To cancel a job that does not run needs the right to delete it."""
    check_values(request.action, request)
    async with database.write() as connection:
        return await _act(connection, database, actor, request, only_running=not may_delete)


async def _act(
    connection: Connection, database: Database, actor: Actor, request: ActionRequest, *, only_running: bool
) -> ActionAnswer:
    ids, schema = list(dict.fromkeys(request.ids)), database.schema
    found, busy = await lock_jobs(connection, schema, ids)
    skipped = {job_id: _why_not(job_id, found, busy, request, only_running) for job_id in ids}
    if skipped and all(each is not None and each.why == "not allowed" for each in skipped.values()):
        raise Problem(403, "You may not do this", DELETES)
    jobs = [found[job_id] for job_id in sorted(ids) if skipped[job_id] is None]
    audit_id = None
    if jobs:
        audit_id = await record(
            connection, schema, actor, request.action,
            target=ids_in_words(ids), job_ids=ids, details=request.given,
        )  # fmt: skip
    done = await change(
        connection, database.utils, request.action, request, jobs, audit_id=audit_id, who=actor.name
    )
    if audit_id is not None:
        await complete_record(
            connection, schema, audit_id,
            jobs=len(done.ids), job_ids=[*done.ids, *done.added] or ids, target=ids_in_words(done.ids or ids),
        )  # fmt: skip
    left = [skipped[job_id] or _left(job_id, done) for job_id in ids if job_id not in set(done.ids)]
    return ActionAnswer(
        action=request.action,
        changed=done.ids,
        skipped=left,
        retried=done.retried,
        asked=done.asked,
        added=done.added,
        undo=str(audit_id) if audit_id is not None and done.kept else None,
        message=in_words(request.action, done, left),
    )


def _why_not(
    job_id: int, found: dict[int, Standing], busy: set[int], request: ActionRequest, only_running: bool
) -> Skipped | None:
    """Why a job must be left as it is; None if it can be changed."""
    job = found.get(job_id)
    if job is None:
        if job_id in busy:
            return Skipped(job_id, "busy", BUSY)
        return Skipped(job_id, "gone", "it has completed, or was deleted")
    if job.state == "running" and not ACTIONS[request.action].takes_running:
        return Skipped(job_id, "running", f"on {job.locked_by}" if job.locked_by else "")
    if only_running and request.action == "cancel" and job.state != "running":
        return Skipped(job_id, "not allowed", DELETES)
    if request.state is not None and job.state != request.state and job.state != "running":
        return Skipped(job_id, "changed", f"it is {job.state} now, not {request.state}")
    return None


def _left(job_id: int, done: Changed) -> Skipped:
    if done.problem is not None:
        return Skipped(job_id, "not allowed", done.problem)
    return Skipped(job_id, "changed", "the database left it as it is")


def check_values(action: ActionName, values: ActionValues) -> None:
    """Refuse a change that says nothing."""
    if action == "reschedule" and not values.changes:
        raise Problem(
            400, "Nothing to change", "Give run_at, priority, attempts or max_attempts, or several of them."
        )


def ids_in_words(ids: Sequence[int]) -> str:
    """`job 12`, `jobs 12, 13 and 14`, `jobs 12, 13, 14 and 97 more`."""
    if len(ids) == 1:
        return f"job {ids[0]}"
    if len(ids) <= 4:
        return "jobs " + ", ".join(map(str, ids[:-1])) + f" and {ids[-1]}"
    return "jobs " + ", ".join(map(str, ids[:3])) + f" and {len(ids) - 3:,} more"


def in_words(action: ActionName, done: Changed, skipped: Sequence[Skipped]) -> str:
    """What happened, in one or two sentences."""
    sentences = [_main_sentence(action, done)] if done.ids or not skipped else []
    if done.retried:
        have = "it had" if len(done.retried) == 1 else f"{len(done.retried):,} of them had"
        sentences.append(f"This is a retry: {have} no attempts left.")
    if done.asked:
        sentences.append(f"{count(len(done.asked), 'worker')} asked to end a running job.")
    if skipped:
        why = Counter(job.why for job in skipped)
        reasons = ", ".join(f"{number:,} {reason}" for reason, number in sorted(why.items()))
        sentences.append(f"{count(len(skipped), 'job')} skipped ({reasons}).")
    return " ".join(sentences)


def _main_sentence(action: ActionName, done: Changed) -> str:
    what = ids_in_words(done.ids) if 0 < len(done.ids) <= 4 else count(len(done.ids), "job")
    if action == "give_up":
        return f"Gave up on {what}."
    if action == "run_now":
        return f"{what[0].upper()}{what[1:]} can start now."
    if action == "add_again":
        return f"Added {what} again as {ids_in_words(done.added)}."
    return f"{ACTIONS[action].done} {what}."
