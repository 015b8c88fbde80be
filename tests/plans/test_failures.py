"""Plans of what is written about jobs that fail: a failure costs the same however many there were.

A worker's session makes the plan of a statement once. Usually it does so when the first job fails, while the
tables of failures are nearly empty, and still uses it when they are full. So each statement runs here with
empty tables first, and its plan of then is explained in full ones. The table of jobs may be
full at first, or empty.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import pytest

from graphile_worker.database.statements.control import CancelledJob
from graphile_worker.database.statements.fetch import get_jobs
from graphile_worker.database.statements.manage_jobs import cancel_jobs
from graphile_worker.database.statements.write import Written, write
from graphile_worker.database.statements.write_plan import ErrorRecord, Failure, Outcomes, WritePlanner
from graphile_worker.values.job import Job
from graphile_worker.values.retention import Retention
from plans.backlogs import LATER, SCHEMA, SIZE, jobs, prepare, queues
from plans.desks import Desk, desk_in
from plans.explaining import ExplainingConnection

POOL = "pool under test"
FEW, BATCH = 5, 100
MANY = SIZE // 10
LAST_ATTEMPT = 24
DAY = 86_400.0
RECORD = ErrorRecord(
    seconds=0.1,
    retention=Retention(DAY),
    keep_error_seconds=DAY,
    error_type="ValueError",
    traceback="",
    fingerprint="x",
)
HISTORY, ERRORS = f"{SCHEMA}._private_py_history", f"{SCHEMA}._private_py_errors"
TASK_ID = f"(select min(id) from {SCHEMA}._private_tasks)"
TOMORROW = "(now() at time zone 'UTC')::date + 1"
FAILURES = (
    jobs(MANY, attempts=25),
    f"""
    insert into {HISTORY} (
      job_id, task_id, state, priority, attempts, max_attempts, created_at, run_at, finished_at, expires_on
    )
    select 10000000 + n, {TASK_ID}, 'failed', 0, 25, 25, now(), now(), now(), {TOMORROW}
    from generate_series(1, {MANY}) n
    """,
    f"""
    insert into {ERRORS} (job_id, attempt, task_id, failed_at, is_final, message, fingerprint, expires_on)
    select 10000000 + n, 25, {TASK_ID}, now(), true, 'no', 'x', {TOMORROW} from generate_series(1, {MANY}) n
    """,
    queues(MANY),
)


@pytest.fixture(params=[(), (jobs(MANY, run_at=LATER), "vacuum analyze")], ids=["no jobs", "many jobs"])
async def desk(request: pytest.FixtureRequest, database_url: str, connection: Any) -> AsyncIterator[Desk]:
    """A connection that keeps its plans, in a database without failures."""
    await prepare(connection)
    for statement in request.param:
        await connection.execute(statement)
    for table in (HISTORY, ERRORS):
        await connection.execute(
            f"select {SCHEMA}._private_py_add_partition('{table}'::regclass, {TOMORROW} + day) "
            "from generate_series(-1, 1) day"
        )
    async with desk_in(database_url) as desk:
        explaining = ExplainingConnection(desk.connection, keeps_plans=True)
        yield Desk(desk.connection, explaining, desk.schema, desk.tasks)


async def fetch(desk: Desk, count: int, *, attempts: int) -> list[Job]:
    await desk.connection.execute(jobs(count, attempts=attempts))
    return await get_jobs(desk.connection, desk.schema, pool_id=POOL, tasks=desk.tasks, limit=count)


async def fail(desk: Desk, failed: Sequence[Job], record: ErrorRecord | None, *details: Any) -> Written:
    """Write these failures and explain every statement; `details` are the last fields of `Failure`."""
    failures = [Failure(job.id, "no", None, None, record, *details) for job in failed]

    def cancellable(job_ids: AbstractSet[int]) -> list[CancelledJob]:
        retention = None if record is None else record.retention
        return [
            CancelledJob(job=job, retention=retention, is_own=True) for job in failed if job.id in job_ids
        ]

    desk.explaining.plans.clear()
    plan = WritePlanner(POOL, SCHEMA).plan(Outcomes(failed=failures))
    return await write(desk.explaining, desk.schema, plan, cancellable=cancellable)


async def add_failures(desk: Desk) -> None:
    """Fill the tables as many permanent failures would."""
    for statement in FAILURES:
        await desk.connection.execute(statement)


def assert_bounded(desk: Desk) -> None:
    for plan in desk.explaining.plans:
        assert plan.all_rows <= 12 * BATCH, plan.describe_all()
        assert plan.all_pages <= 200 * BATCH, plan.describe_all()


@pytest.fixture(params=[None, RECORD], ids=["without history", "with history"])
def record(request: pytest.FixtureRequest) -> ErrorRecord | None:
    found: ErrorRecord | None = request.param
    return found


ENDINGS: dict[str, tuple[Any, ...]] = {
    "retried": (),
    "retried at once": (None, 0.0),
    "snoozed": ("snooze", 60.0),
    "given up": ("give_up",),
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_failure_does_not_read_earlier_ones(
    desk: Desk, record: ErrorRecord | None, ending: str
) -> None:
    await fail(desk, await fetch(desk, FEW, attempts=0), record, *ENDINGS[ending])
    await add_failures(desk)
    failed = await fetch(desk, BATCH, attempts=0)
    written = await fail(desk, failed, record, *ENDINGS[ending])
    assert not written.missing
    assert len(written.final) == (BATCH if ending == "given up" else 0)
    assert_bounded(desk)


async def test_a_permanent_failure_does_not_read_earlier_ones(desk: Desk, record: ErrorRecord | None) -> None:
    await fail(desk, await fetch(desk, FEW, attempts=LAST_ATTEMPT), record)
    await add_failures(desk)
    failed = await fetch(desk, BATCH, attempts=LAST_ATTEMPT)
    written = await fail(desk, failed, record)
    assert written.final == {job.id for job in failed}
    assert_bounded(desk)
    *_, look = desk.explaining.plans
    assert look.touched == 0, look.describe_all()  # none was cancelled, so none is read again


async def test_a_failure_of_a_cancelled_job_does_not_read_earlier_ones(
    desk: Desk, record: ErrorRecord | None
) -> None:
    for count in (FEW, BATCH):
        failed = await fetch(desk, count, attempts=0)
        asked = [job.id for job in failed][::2]
        report = await cancel_jobs(desk.connection, desk.schema, asked)
        assert len(report.asked) == len(asked)
        written = await fail(desk, failed, record)
        assert written.cancelled.keys() == set(asked)
        assert not written.final
        if count == FEW:
            await add_failures(desk)
    assert_bounded(desk)
