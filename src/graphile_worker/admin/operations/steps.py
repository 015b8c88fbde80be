"""One step of an operation: one transaction that changes the next jobs and notes how far it has come.

The transaction holds the lock of the operation's row and checks that this dashboard still has the lease. So
each job is changed once, however often a dashboard is restarted and however many there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ...database.connections.connection import Connection, Row
from ...database.sql import load
from ...history.audit import MAX_KEPT, Actor, complete_record
from ..database import HISTORY, STEP_WITHIN, Database, own_tables
from ..jobs import ActionName
from ..jobs.changing import MAY_BE_RUNNING, Standing, change, lock_jobs
from ..security.redact import redacted_text
from . import Chosen, undo
from .choosing import Choice, choose
from .queries import LEASE, action_of, position_of, values_of

STEP = 1_000
"""Jobs of one step."""
MOST_WATCHED = 1_000
"""Retried jobs without an outcome, at which a careful retry waits for workers."""
LOOK_EVERY = 1.0
"""Seconds between two looks at jobs that were retried."""


class Step(msgspec.Struct, frozen=True):
    """What a step did, and when the next one is due."""

    changed: int = 0
    wait: float = 0.0
    """Seconds until the next step."""
    is_over: bool = False
    """The operation has ended, or another dashboard has it."""


class StepProgress(msgspec.Struct):
    """What is written at the end of a step."""

    last_id: int
    last_at: Any
    stage: str
    watched: list[int]
    changed: int = 0
    skipped: int = 0
    succeeded: int = 0
    kept: int = 0
    state: str | None = None
    note: str | None = None
    wait: float = 0.0


async def step(database: Database, operation_id: int, runner: str) -> Step:
    """Make the next step."""
    async with database.write(within=STEP_WITHIN) as connection:
        schema = database.schema
        mine = await connection.fetchval(load("admin/lock_operation", schema), operation_id, runner, LEASE)
        row = await connection.fetchrow(load("admin/get_operation", schema), operation_id)
        if mine is None or row is None:
            return Step(is_over=True)
        done = StepProgress(row["last_id"], row["last_at"], row["stage"], list(row["watched"]))
        if row["state"] == "stopping":
            done.state = "stopped"
            done.note = "Stopped by a person."
        elif row["action"] == "undo":
            await _undo_some(connection, database, row, done)
        else:
            await _STAGES[row["stage"]](connection, database, row, done)
        await _note(connection, database, row, done)
        return Step(done.changed, done.wait, is_over=done.state is not None)


async def _note(connection: Connection, database: Database, row: Row, done: StepProgress) -> None:
    await connection.execute(
        load("admin/advance_operation", database.schema),
        row["id"], done.last_id, done.last_at, done.changed, done.skipped, done.succeeded, done.watched,
        done.kept, done.stage, done.state, done.note,
    )  # fmt: skip
    if done.changed:
        await complete_record(connection, database.schema, row["audit_id"], jobs=done.changed)


# -- all jobs ----------------------------------------------------------------------------------------------


async def _all(connection: Connection, database: Database, row: Row, done: StepProgress) -> None:
    choice = await _change_next(connection, database, row, done, _size(row))
    if choice.is_last:
        done.state = "done"


async def _change_next(
    connection: Connection, database: Database, row: Row, done: StepProgress, size: int
) -> Choice:
    """Change the next jobs, and note where the step after it starts."""
    chosen = msgspec.json.decode(row["chosen"], type=Chosen)
    choice = await choose(connection, database.schema, chosen, action_of(row), position_of(row), size)
    found, _ = await lock_jobs(connection, database.schema, choice.ids)
    jobs = [found[job_id] for job_id in sorted(found) if may_change(chosen, action_of(row), found[job_id])]
    audit_id = await _audit_id_for(connection, database, row, len(jobs))
    made = await change(
        connection, database.utils, action_of(row), values_of(row), jobs,
        audit_id=audit_id, who=actor_of(row).name,
    )  # fmt: skip
    done.last_id, done.last_at = choice.position.last_id, choice.position.last_at
    done.changed += len(made.ids)
    done.skipped += choice.skipped + len(choice.ids) - len(made.ids)
    done.kept += made.kept
    done.watched = [*done.watched, *made.ids] if row["stage"] != "all" else []
    if row["rate"] is not None and made.ids:
        done.wait = len(made.ids) / row["rate"]
    return choice


def may_change(chosen: Chosen, action: ActionName, job: Standing) -> bool:
    """Whether a job that was chosen is still one to change, now that it is locked."""
    if job.state == "running":
        return action in MAY_BE_RUNNING
    return not chosen.only_running and (chosen.fingerprint is None or job.attempts > 0)


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


def _size(row: Row) -> int:
    rate = row["rate"]
    return STEP if rate is None else max(1, min(STEP, int(rate)))


# -- a careful retry -----------------------------------------------------------------------------------------


async def _canary(connection: Connection, database: Database, row: Row, done: StepProgress) -> None:
    """Retry some jobs."""
    wanted = int(msgspec.json.decode(row["arguments"]).get("canary", 1))
    choice = await _change_next(connection, database, row, done, wanted)
    done.wait = LOOK_EVERY
    if len(done.watched) >= wanted or choice.is_last:
        done.stage = "watching" if done.watched else "settling"  # no job is left
    else:
        done.wait = 0.0


async def _watching(connection: Connection, database: Database, row: Row, done: StepProgress) -> None:
    """Wait for the outcome of the first jobs."""
    await _look(connection, database, row, done)
    done.wait = LOOK_EVERY
    if not done.watched and done.state is None:
        has_proof = row["succeeded"] + done.succeeded > 0  # else the job is gone: send another
        done.stage, done.wait = "rest" if has_proof else "canary", 0.0


async def _rest(connection: Connection, database: Database, row: Row, done: StepProgress) -> None:
    """Retry the others, as long as none fails and workers keep up."""
    await _look(connection, database, row, done)
    done.wait = LOOK_EVERY
    if done.state is not None or len(done.watched) >= MOST_WATCHED:
        return
    choice = await _change_next(connection, database, row, done, _size(row))
    if choice.is_last:
        done.stage = "settling"


async def _settling(connection: Connection, database: Database, row: Row, done: StepProgress) -> None:
    """Wait for the outcome of the last jobs."""
    await _look(connection, database, row, done)
    done.wait = LOOK_EVERY
    if not done.watched and done.state is None:
        done.state = "done"


async def _look(connection: Connection, database: Database, row: Row, done: StepProgress) -> None:
    """See what became of retried jobs; the first failure stops it all.

    Workers delete jobs that complete, so a job that is no longer there succeeded, unless something says
    otherwise: then it is gone, and neither proves nor disproves the fix.
    """
    if not done.watched:
        return
    rows = await connection.fetch(load("admin/watched_jobs", database.schema), done.watched)
    left = [job["id"] for job in rows]
    failed = [job for job in rows if job["has_failed"]]
    missing = sorted(set(done.watched) - set(left))
    gone = await _deleted(connection, database, row, missing)
    for end in await _other_finished_jobs(connection, database, row, missing):
        if end["state"] == "failed":
            failed.append(end)
        gone.add(end["id"])
    done.succeeded += len(missing) - len(gone)
    done.watched = left
    if failed:
        done.state = "stopped"
        done.note = _why_stopped(row, failed)


async def _deleted(connection: Connection, database: Database, row: Row, missing: Sequence[int]) -> set[int]:
    """Those that were deleted through the dashboard."""
    if not missing:
        return set()
    statement = load("admin/deleted_by_hand", database.schema)
    return {each["job_id"] for each in await connection.fetch(statement, missing, row["audit_id"])}


async def _other_finished_jobs(
    connection: Connection, database: Database, row: Row, missing: Sequence[int]
) -> Sequence[Row]:
    """Those that were cancelled, expired or failed, as the history says."""
    if not missing or not await own_tables(connection, database.schema) >= HISTORY:
        return []
    statement = load("admin/other_finished_jobs", database.schema)
    return await connection.fetch(statement, missing, row["created_at"])


def _why_stopped(row: Row, failed: Sequence[Row]) -> str:
    first = failed[0]
    lines = str(first["last_error"] or "").strip().splitlines()
    which = "The first job" if row["stage"] == "watching" else "A retried job"
    more = f" ({len(failed) - 1:,} more failed too)" if len(failed) > 1 else ""
    message = redacted_text(lines[0])[:500] if lines else "no message"
    return f"{which}, {first['id']}, failed again{more}: {message}"


# -- an undo -------------------------------------------------------------------------------------------------


async def _undo_some(connection: Connection, database: Database, row: Row, done: StepProgress) -> None:
    chosen = msgspec.json.decode(row["chosen"], type=Chosen)
    found = await undo.undo_step(connection, database.schema, chosen.audit_id or 0, row["last_id"])
    done.last_id = found.last_id
    done.changed, done.skipped = len(found.restored), len(found.left)
    if found.is_last:
        done.state = "done"


def actor_of(row: Row) -> Actor:
    """Who began the operation."""
    return Actor(row["who"] or "", row["how"] or "", row["origin"] or "")


_STAGES = {"all": _all, "canary": _canary, "watching": _watching, "rest": _rest, "settling": _settling}
