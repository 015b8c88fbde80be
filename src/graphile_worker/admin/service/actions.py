"""Actions on jobs that are named by id: run now, retry, reschedule, give up, delete, cancel, add again.

One action is one transaction: the rows are locked, kept as they were, changed by the functions of the client,
and recorded in the audit. The answer names every id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ...database.connections.connection import Connection
from ...history.audit import Actor, complete_record, record
from ...values.text import count
from ..answers import Problem
from ..database import Database
from ..models.actions import ActionAnswer, ActionName, ActionRequest, ActionValues, Skipped
from .changing import Changed, Standing, change, lock_jobs

DONE: dict[ActionName, str] = {
    "run_now": "Started",
    "retry": "Retried",
    "reschedule": "Rescheduled",
    "give_up": "Gave up",
    "delete": "Deleted",
    "cancel": "Cancelled",
    "add_again": "Added again",
}
BUSY = "a worker or another transaction has locked its row at the moment; try again"
MAY_BE_RUNNING: tuple[ActionName, ...] = ("cancel", "add_again")


async def act(database: Database, actor: Actor, request: ActionRequest) -> ActionAnswer:
    """Do it, as far as the jobs allow."""
    check_values(request.action, request)
    async with database.write() as connection:
        return await _act(connection, database, actor, request)


async def _act(
    connection: Connection, database: Database, actor: Actor, request: ActionRequest
) -> ActionAnswer:
    ids, schema = list(dict.fromkeys(request.ids)), database.schema
    found, busy = await lock_jobs(connection, schema, ids)
    skipped = {job_id: _why_not(job_id, found, busy, request) for job_id in ids}
    jobs = [found[job_id] for job_id in sorted(ids) if skipped[job_id] is None]
    audit_id = None
    if jobs:
        audit_id = await record(
            connection, schema, actor, request.action,
            target=ids_in_words(ids), job_ids=ids, details=given_values(request),
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
    job_id: int, found: dict[int, Standing], busy: set[int], request: ActionRequest
) -> Skipped | None:
    """Why a job must be left as it is; None if it can be changed."""
    job = found.get(job_id)
    if job is None:
        if job_id in busy:
            return Skipped(job_id, "busy", BUSY)
        return Skipped(job_id, "gone", "it has completed, or was deleted")
    if job.state == "running" and request.action not in MAY_BE_RUNNING:
        return Skipped(job_id, "running", f"on {job.locked_by}" if job.locked_by else "")
    if request.state is not None and job.state != request.state and job.state != "running":
        return Skipped(job_id, "changed", f"it is {job.state} now, not {request.state}")
    return None


def _left(job_id: int, done: Changed) -> Skipped:
    if done.problem is not None:
        return Skipped(job_id, "not allowed", done.problem)
    return Skipped(job_id, "changed", "the database left it as it is")


def check_values(action: ActionName, values: ActionValues) -> None:
    """Refuse a change that says nothing."""
    if action == "reschedule" and not any(
        getattr(values, name) is not None for name in ("run_at", "priority", "attempts", "max_attempts")
    ):
        raise Problem(
            400, "Nothing to change", "Give run_at, priority, attempts or max_attempts, or several of them."
        )


def given_values(values: ActionValues) -> dict[str, object]:
    """What was given besides the jobs, for the audit."""
    names = ("run_at", "priority", "attempts", "max_attempts", "one_more", "reason")
    given = {name: getattr(values, name) for name in names}
    return {name: value for name, value in given.items() if value not in (None, "", False)}


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
    return f"{DONE[action]} {what}."
