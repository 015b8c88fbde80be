"""One change to jobs that are named by id, in the caller's transaction.

Actions and the steps of operations both end here, in the functions of the client.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from ... import sqlstates
from ...db.connection import Connection
from ...db.errors import sqlstate_of
from ...expiry import EXPIRES_FLAG
from ...queries.before import keep_added, keep_before, settle_before
from ...spec import SMALLINT_MAX, JobSpec
from ...sql import load
from ..models.actions import ActionName, ActionValues

if TYPE_CHECKING:
    from ...client import WorkerUtils

WAKING: tuple[ActionName, ...] = ("run_now", "retry", "reschedule")
"""Actions after which jobs may be ready: workers are told."""


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
    ids = [job.id for job in jobs]
    done = Changed()
    if not ids:
        return done
    if audit_id is not None and action != "add_again":
        await keep_before(connection, utils.schema, audit_id, ids)
    await _CHANGES[action](connection, utils, values, jobs, who, done)
    if audit_id is not None:
        if action == "add_again":
            await keep_added(connection, utils.schema, audit_id, done.added)
            await settle_before(connection, utils.schema, audit_id, [], done.added)
            done.kept = len(done.added)
        else:
            undoable = sorted(set(done.ids) - set(done.asked))
            await settle_before(connection, utils.schema, audit_id, ids, undoable)
            done.kept = len(undoable)
    if action in WAKING and done.ids:
        await connection.fetchval(load("admin/announce", utils.schema), len(done.ids))
    return done


async def _run_now(
    connection: Connection,
    utils: WorkerUtils,
    values: ActionValues,
    jobs: Sequence[Standing],
    who: str,
    done: Changed,
) -> None:
    """A job without attempts would stay where it is: it is retried instead."""
    waiting = [job.id for job in jobs if not job.is_exhausted]
    exhausted = [job.id for job in jobs if job.is_exhausted]
    now = timedelta(0)
    if waiting:
        done.ids += [
            job.id for job in await utils.reschedule_jobs(waiting, run_at=now, connection=connection)
        ]
    if exhausted:
        found = await utils.reschedule_jobs(exhausted, run_at=now, attempts=0, connection=connection)
        done.retried += [job.id for job in found]
        done.ids = sorted(done.ids + done.retried)


async def _retry(
    connection: Connection,
    utils: WorkerUtils,
    values: ActionValues,
    jobs: Sequence[Standing],
    who: str,
    done: Changed,
) -> None:
    if not values.one_more:
        ids = [job.id for job in jobs]
        found = await utils.reschedule_jobs(ids, run_at=timedelta(0), attempts=0, connection=connection)
        done.ids += [job.id for job in found]
        return
    groups: defaultdict[tuple[int | None, int | None], list[int]] = defaultdict(list)
    for job in jobs:
        if not job.is_exhausted:
            groups[None, None].append(job.id)  # it has an attempt
        elif job.attempts < SMALLINT_MAX:
            groups[None, job.attempts + 1].append(job.id)
        else:
            groups[SMALLINT_MAX - 1, SMALLINT_MAX].append(job.id)
    for (attempts, most), ids in groups.items():
        found = await utils.reschedule_jobs(
            ids, run_at=timedelta(0), attempts=attempts, max_attempts=most, connection=connection
        )
        done.ids += [job.id for job in found]
    done.ids.sort()


async def _reschedule(
    connection: Connection,
    utils: WorkerUtils,
    values: ActionValues,
    jobs: Sequence[Standing],
    who: str,
    done: Changed,
) -> None:
    found = await utils.reschedule_jobs(
        [job.id for job in jobs],
        run_at=with_zone(values.run_at),
        priority=values.priority,
        attempts=values.attempts,
        max_attempts=values.max_attempts,
        connection=connection,
    )
    done.ids += [job.id for job in found]


async def _give_up(
    connection: Connection,
    utils: WorkerUtils,
    values: ActionValues,
    jobs: Sequence[Standing],
    who: str,
    done: Changed,
) -> None:
    reason = f"Given up by {who}" + (f": {values.reason}" if values.reason else "")
    found = await utils.permanently_fail_jobs([job.id for job in jobs], reason, connection=connection)
    done.ids += [job.id for job in found]


async def _delete(
    connection: Connection,
    utils: WorkerUtils,
    values: ActionValues,
    jobs: Sequence[Standing],
    who: str,
    done: Changed,
) -> None:
    """By cancelling, for jobs that do not run: those that are kept end as cancelled, not as completed."""
    reason = f"deleted by {who}" + (f": {values.reason}" if values.reason else "")
    report = await utils.cancel_jobs([job.id for job in jobs], reason=reason, connection=connection)
    done.ids += [job.id for job in report.removed]


async def _cancel(
    connection: Connection,
    utils: WorkerUtils,
    values: ActionValues,
    jobs: Sequence[Standing],
    who: str,
    done: Changed,
) -> None:
    reason = f"cancelled by {who}" + (f": {values.reason}" if values.reason else "")
    report = await utils.cancel_jobs([job.id for job in jobs], reason=reason, connection=connection)
    done.asked += [job.id for job in report.asked]
    done.ids = sorted([job.id for job in report.removed] + done.asked)
    done.problem = report.problem


async def _add_again(
    connection: Connection,
    utils: WorkerUtils,
    values: ActionValues,
    jobs: Sequence[Standing],
    who: str,
    done: Changed,
) -> None:
    specs = []
    for standing in jobs:
        job = await utils.get_job(standing.id, connection=connection)
        if job is None:
            continue
        done.ids.append(job.id)
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
    done.added = [job.id for job in await utils.add_jobs(specs, connection=connection)]


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
