"""Changing all jobs that match a filter: what is changed, what is left alone, and beside running workers."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from graphile_worker.client import WorkerUtils, make_worker_utils
from graphile_worker.database.statements import bulk_changes
from graphile_worker.database.statements.bulk_changes import BulkReport
from graphile_worker.database.statements.inspection import JobFilter
from graphile_worker.errors import InvalidArgumentError
from graphile_worker.testing import FakeClock
from graphile_worker.values.spec import JobSpec
from support.cases import looped
from support.working import Jobs, Workers, until

NOW = timedelta()
MANY = 6_000


async def add_failed(utils: WorkerUtils, task: str, number: int, error: str = "no") -> list[int]:
    jobs = await utils.add_jobs([JobSpec(task, n) for n in range(number)])
    ids = [job.id for job in jobs]
    await utils.permanently_fail_jobs(ids, error)
    return ids


async def ids_of(utils: WorkerUtils, **conditions: Any) -> list[int]:
    return [job.id for job in await utils.jobs.list(JobFilter(limit=100_000, **conditions))]


# -- what is changed ---------------------------------------------------------------------------------------


async def test_all_failed_jobs_are_retried(utils: WorkerUtils) -> None:
    mails = await add_failed(utils, "mail", 5)
    cards = await add_failed(utils, "card", 2)
    other = await utils.add_job("mail", run_at=timedelta(hours=1))
    report = await utils.reschedule_jobs(filter=JobFilter(state="failed"), run_at=NOW, attempts=0)
    assert report == BulkReport(
        changed=7, tasks={"card": 2, "mail": 5}, last_id=other.id, up_to=other.id, is_complete=True
    )
    assert await ids_of(utils, state="ready") == [*mails, *cards]
    assert await ids_of(utils, state="scheduled") == [other.id]


async def test_failed_jobs_without_an_attempt_stay_failed_and_are_counted(utils: WorkerUtils) -> None:
    await add_failed(utils, "mail", 3)
    await utils.add_job("mail")
    report = await utils.reschedule_jobs(filter=JobFilter(task_identifier="mail"), run_at=NOW)
    assert (report.changed, report.failed) == (4, 3)


async def test_every_change_takes_a_filter(utils: WorkerUtils) -> None:
    await utils.add_jobs([JobSpec(task, n) for n in range(3) for task in ("fail", "complete", "cancel")])
    failed = await utils.permanently_fail_jobs(filter=JobFilter(task_identifier="fail"), reason="enough")
    assert (failed.changed, failed.failed, failed.tasks) == (3, 3, {"fail": 3})
    assert {job.last_error for job in await utils.jobs.list(JobFilter(state="failed"))} == {"enough"}
    completed = await utils.complete_jobs(filter=JobFilter(task_identifier="complete"))
    cancelled = await utils.cancel_jobs(filter=JobFilter(task_identifier="cancel"))
    assert completed.changed == cancelled.changed == 3
    assert {job.task_identifier for job in await utils.jobs.list()} == {"fail"}


CONDITIONS: dict[str, dict[str, Any]] = {
    "state": {"state": "scheduled"},
    "task": {"task_identifier": "wanted"},
    "queue": {"queue_name": "wanted"},
    "key": {"job_key": "wanted"},
    "flag": {"flag": "wanted"},
    "error": {"error": "WANTED"},
    "created": {"created_until": datetime(2020, 1, 1, tzinfo=UTC)},
    "failed": {"failed_since": datetime(2020, 1, 1, tzinfo=UTC)},
    "two of them": {"state": "failed", "error": "wanted"},
}


@looped("conditions", CONDITIONS.values())
async def test_a_change_meets_the_jobs_that_the_list_shows(
    utils: WorkerUtils, connection: Any, conditions: dict[str, Any]
) -> None:
    await connection.execute("delete from graphile_worker._private_jobs")
    await utils.add_jobs([JobSpec("other", 1, queue_name="other", flags=["other"]), JobSpec("other", 2)])
    await utils.add_job("wanted")
    await utils.add_job("other", queue_name="wanted")
    await utils.add_job("other", job_key="wanted")
    await utils.add_job("other", flags=["wanted", "more"])
    await utils.add_job("other", run_at=timedelta(hours=1))
    old = await utils.add_job("other")
    await connection.execute(
        "update graphile_worker._private_jobs set created_at = '2019-01-01' where id = $1", old.id
    )
    failed = await utils.add_job("other")
    await utils.permanently_fail_jobs([failed.id], "Wanted: an error")
    listed = await ids_of(utils, **conditions)
    assert len(listed) == 1
    everything = await ids_of(utils)
    seen: list[int] = []
    report = await utils.cancel_jobs(
        filter=JobFilter(**conditions), on_step=lambda _report, ids: seen.extend(ids)
    )
    assert (report.changed, seen) == (1, listed)
    assert await ids_of(utils) == [job_id for job_id in everything if job_id not in listed]


async def test_without_the_index_of_failed_jobs_they_are_found_too(
    utils: WorkerUtils, connection: Any
) -> None:
    await utils.add_job("mail")
    await add_failed(utils, "mail", 3)
    await connection.execute("drop index graphile_worker._private_py_jobs_failed_index")
    assert (await utils.cancel_jobs(filter=JobFilter(state="failed"))).changed == 3


async def test_a_dry_run_counts_and_changes_nothing(utils: WorkerUtils) -> None:
    await add_failed(utils, "mail", 3)
    await utils.add_job("card")
    before = await utils.jobs.list()
    report = await utils.complete_jobs(filter=JobFilter(), all=True, dry_run=True)
    assert (report.changed, report.failed, report.tasks) == (4, 3, {"card": 1, "mail": 3})
    assert (report.is_complete, report.is_dry_run) == (True, True)
    assert await utils.jobs.list() == before


async def test_a_limit_takes_the_oldest(utils: WorkerUtils) -> None:
    ids = await add_failed(utils, "mail", 10)
    report = await utils.cancel_jobs(filter=JobFilter(state="failed", limit=4), step_size=3)
    assert (report.changed, report.last_id, report.is_complete) == (4, ids[3], True)
    assert await ids_of(utils) == ids[4:]
    counted = await utils.cancel_jobs(filter=JobFilter(state="failed", limit=4), dry_run=True)
    assert counted.changed == 4


async def test_jobs_that_are_locked_stay_and_are_counted(utils: WorkerUtils, connection: Any) -> None:
    ids = await add_failed(utils, "mail", 5)
    await utils.reschedule_jobs(ids, run_at=NOW, attempts=0)
    await connection.execute(
        "update graphile_worker._private_jobs "
        "set locked_at = now() - interval '5 hours', locked_by = 'pool-x' where id = any($1::bigint[])",
        ids[1:3],
    )
    for change in (utils.reschedule_jobs, utils.permanently_fail_jobs, utils.complete_jobs):
        counted = await change(filter=JobFilter(task_identifier="mail"), dry_run=True)
        report = await change(filter=JobFilter(task_identifier="mail"))
        assert (counted.changed, counted.skipped) == (report.changed, report.skipped)
        assert (report.changed, report.skipped) == (3, 2)
    assert await ids_of(utils, state="running") == ids[1:3]


async def test_a_filter_without_conditions_needs_all(utils: WorkerUtils) -> None:
    await utils.add_jobs([JobSpec("a", n) for n in range(3)])
    with pytest.raises(InvalidArgumentError, match="has no conditions and matches every job"):
        await utils.complete_jobs(filter=JobFilter(limit=2))
    assert (await utils.complete_jobs(filter=JobFilter(), all=True)).changed == 3
    assert await utils.complete_jobs(filter=JobFilter(), all=True) == BulkReport(is_complete=True)


@looped(
    ("arguments", "message"),
    [
        ({}, "job_ids: name the jobs by id, or pass a filter"),
        ({"job_ids": [1], "filter": JobFilter(state="failed")}, "filter: give either job_ids or a filter"),
        ({"job_ids": [1], "dry_run": True}, "dry_run: is for a filter and has no effect on job ids"),
        ({"job_ids": JobFilter()}, "job_ids: expected a list .* a JobFilter is given as filter="),
        ({"filter": "failed"}, "filter: expected a JobFilter, got 'failed'"),
        (
            {"filter": JobFilter(state="ready", order="newest")},
            "changed from the oldest on; got the order newest",
        ),
        ({"filter": JobFilter(state="failed"), "step_size": 0}, "step_size: expected a number from 1 to"),
        (
            {"filter": JobFilter(state="failed"), "jobs_per_second": 0},
            "jobs_per_second: expected a number above 0",
        ),
    ],
)
async def test_arguments_that_make_no_sense_are_refused(
    utils: WorkerUtils, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        await utils.complete_jobs(**arguments)


# -- cancelling by id --------------------------------------------------------------------------------------


async def test_cancelling_says_what_became_of_each_job(utils: WorkerUtils, selection: Any) -> None:
    report = await utils.cancel_jobs([*selection.four_ids, 999, 999])
    assert report.removed == [selection.failed, selection.regular_1, selection.regular_2]
    assert report.asked == [selection.locked]
    assert report.asked[0].locked_by == "test"
    assert (report.gone, report.running, report.problem) == ([999], [], None)
    assert await ids_of(utils) == [selection.locked.id, selection.untouched.id]


async def test_a_job_that_a_worker_is_taking_is_reported_as_running(
    utils: WorkerUtils, connection: Any
) -> None:
    """Cancelling waits for the fetch in flight and sees its lock."""
    job = await utils.add_job("a")
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute(
        "update graphile_worker._private_jobs set locked_at = now(), locked_by = 'pool-x'"
    )
    cancelling = asyncio.create_task(utils.cancel_jobs([job.id]))
    await _until_waiting(utils, "complete_jobs")
    await transaction.commit()
    report = await cancelling
    assert ([found.id for found in report.asked], report.removed, report.gone) == ([job.id], [], [])


async def _until_waiting(utils: WorkerUtils, text: str) -> None:
    async def waits() -> bool:
        async with utils.with_pg_client() as connection:
            return await connection.fetchval(
                "select exists (select from pg_stat_activity where wait_event_type = 'Lock' "
                "and datname = current_database() and query like '%' || $1::text || '%')",
                text,
            )

    await until(waits)


# -- batches -----------------------------------------------------------------------------------------------


async def test_many_jobs_are_changed_in_short_transactions(utils: WorkerUtils, connection: Any) -> None:
    """Six thousand jobs, a thousand in each transaction, and none of them twice."""
    await utils.add_jobs([JobSpec("mail", n) for n in range(MANY)], return_jobs=False)
    await connection.execute("update graphile_worker._private_jobs set attempts = max_attempts")
    reports: list[BulkReport] = []
    seen: list[int] = []

    def note(report: BulkReport, ids: list[int]) -> None:
        reports.append(report)
        seen.extend(ids)

    report = await utils.reschedule_jobs(
        filter=JobFilter(state="failed"), run_at=NOW, attempts=0, on_step=note
    )
    assert report.changed == MANY
    assert len(seen) == len(set(seen)) == MANY
    assert [each.changed for each in reports[:3]] == [1000, 2000, 3000]
    per_transaction = await connection.fetch(
        "select count(*) as jobs from graphile_worker._private_jobs group by xmin::text"
    )
    assert [row["jobs"] for row in per_transaction] == [bulk_changes.STEP] * (MANY // bulk_changes.STEP)


async def test_each_step_reads_by_indexes_and_leaves_the_session_as_it_was(
    utils: WorkerUtils, connection: Any
) -> None:
    await add_failed(utils, "mail", 3)
    queries: list[str] = []
    connection.add_query_logger(lambda record: queries.append(record.query))
    report = await utils.cancel_jobs(filter=JobFilter(state="failed"), connection=connection)
    assert report.changed == 3
    await until(lambda: len(queries) == 5)  # the driver reports them in later turns of the event loop
    _bounds, begin, settings, statement, commit = queries
    assert (begin, commit) == ("BEGIN;", "COMMIT;")
    assert "'enable_seqscan', 'off', true" in settings
    assert "complete_jobs" in statement
    assert await connection.fetchval("show enable_seqscan") == "on"


async def test_few_among_many_are_found_in_bounded_steps(
    utils: WorkerUtils, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement reads a bounded number of jobs, so most steps find nothing."""
    monkeypatch.setattr(bulk_changes, "READ", 10)
    for _ in range(3):
        await utils.add_jobs([JobSpec("other", n) for n in range(25)])
        await utils.add_job("wanted")
    steps: list[int] = []
    report = await utils.cancel_jobs(
        filter=JobFilter(task_identifier="wanted"),
        step_size=5,
        on_step=lambda _, ids: steps.append(len(ids)),
    )
    assert report.changed == sum(steps) == 3
    assert len(steps) == 8
    assert await ids_of(utils, task_identifier="wanted") == []


async def test_a_run_stops_between_batches_and_can_be_continued(utils: WorkerUtils) -> None:
    ids = await add_failed(utils, "mail", 10)
    condition: dict[str, Any] = {"state": "failed"}
    stop = asyncio.Event()

    def stop_at_six(report: BulkReport, _ids: list[int]) -> None:
        if report.changed == 6:
            stop.set()

    stopped = await utils.cancel_jobs(
        filter=JobFilter(**condition), step_size=3, on_step=stop_at_six, stop=stop
    )
    assert (stopped.changed, stopped.last_id, stopped.is_complete) == (6, ids[5], False)
    assert await ids_of(utils) == ids[6:]
    rest = await utils.cancel_jobs(filter=JobFilter(after=stopped.last_id, **condition), step_size=3)
    assert (rest.changed, rest.is_complete) == (4, True)


async def test_a_cancelled_run_leaves_whole_batches(utils: WorkerUtils) -> None:
    """The callback may be asynchronous, and what was committed before stays."""
    ids = await add_failed(utils, "mail", 10)
    reached = asyncio.Event()

    async def wait_forever(_report: BulkReport, _ids: list[int]) -> None:
        reached.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(
        utils.cancel_jobs(filter=JobFilter(state="failed"), step_size=3, on_step=wait_forever)
    )
    await asyncio.wait_for(reached.wait(), 60)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await ids_of(utils) == ids[3:]


async def test_a_pace_is_kept(database_url: str) -> None:
    """By the client's clock: fifty jobs a second take a second for each fifty."""
    clock = FakeClock(datetime(2030, 1, 1, tzinfo=UTC))
    async with make_worker_utils(connection_string=database_url, clock=clock) as utils:
        await add_failed(utils, "mail", 120)
        sizes: list[int] = []
        running = asyncio.create_task(
            utils.cancel_jobs(
                filter=JobFilter(state="failed"),
                jobs_per_second=50,
                on_step=lambda _report, ids: sizes.append(len(ids)),
            )
        )
        await clock.until_sleeping()
        assert sizes == [50]
        await clock.advance(0.99)
        assert sizes == [50]
        await clock.advance(0.01)
        await until(lambda: len(sizes) == 2)
        await clock.until_sleeping()
        await clock.advance(1)
        async with asyncio.timeout(60):
            assert (await running).changed == 120
        assert sizes == [50, 50, 20]


async def test_a_stop_does_not_wait_for_the_pace(utils: WorkerUtils) -> None:
    await add_failed(utils, "mail", 3)
    stop = asyncio.Event()
    async with asyncio.timeout(60):
        report = await utils.cancel_jobs(
            filter=JobFilter(state="failed"),
            jobs_per_second=0.001,
            on_step=lambda _report, _ids: asyncio.get_running_loop().call_soon(stop.set),
            stop=stop,
        )
    assert (report.changed, report.is_complete) == (1, False)


async def test_jobs_that_are_added_meanwhile_are_not_touched(utils: WorkerUtils) -> None:
    await utils.add_jobs([JobSpec("mail", n) for n in range(10)])

    async def add_more(_report: BulkReport, _ids: list[int]) -> None:
        await utils.add_job("mail", "late")

    report = await utils.cancel_jobs(filter=JobFilter(task_identifier="mail"), step_size=3, on_step=add_more)
    assert report.changed == 10
    assert {job.payload for job in await utils.jobs.list()} == {"late"}


async def test_a_run_ends_where_its_dry_run_ended(utils: WorkerUtils) -> None:
    await utils.add_jobs([JobSpec("mail", n) for n in range(3)])
    counted = await utils.cancel_jobs(filter=JobFilter(task_identifier="mail"), dry_run=True)
    late = await utils.add_job("mail")
    report = await utils.cancel_jobs(filter=JobFilter(task_identifier="mail"), up_to=counted.up_to)
    assert report.changed == counted.changed == 3
    assert await ids_of(utils) == [late.id]


async def test_on_a_connection_of_the_caller_all_batches_are_one_transaction(
    utils: WorkerUtils, connection: Any
) -> None:
    ids = await add_failed(utils, "mail", 10)
    transaction = connection.transaction()
    await transaction.start()
    report = await utils.cancel_jobs(filter=JobFilter(state="failed"), step_size=3, connection=connection)
    assert report.changed == 10
    assert await ids_of(utils) == ids
    await transaction.rollback()
    assert await ids_of(utils) == ids


# -- beside others -----------------------------------------------------------------------------------------


async def test_rows_that_another_transaction_has_locked_are_skipped_at_once(
    utils: WorkerUtils, database_url: str
) -> None:
    """Nothing waits for a fetch or an application's transaction that stays open."""
    ids = await add_failed(utils, "mail", 5)
    other = await asyncpg.connect(database_url)
    try:
        transaction = other.transaction()
        await transaction.start()
        await other.execute("select from graphile_worker._private_jobs where id = $1 for update", ids[2])
        async with asyncio.timeout(60):
            report = await utils.cancel_jobs(filter=JobFilter(state="failed"))
        await transaction.rollback()
    finally:
        await other.close(timeout=60)
    assert (report.changed, report.skipped) == (4, 1)
    assert await ids_of(utils) == [ids[2]]


async def test_two_runs_at_the_same_time_change_no_job_twice(utils: WorkerUtils) -> None:
    await add_failed(utils, "mail", 2000)
    seen: list[int] = []

    async def run() -> BulkReport:
        return await utils.reschedule_jobs(
            filter=JobFilter(state="failed"),
            run_at=NOW,
            attempts=0,
            step_size=100,
            on_step=lambda _report, ids: seen.extend(ids),
        )

    reports = await asyncio.gather(run(), run())
    assert sum(report.changed for report in reports) == len(seen) == len(set(seen)) == 2000
    assert await ids_of(utils, state="failed") == []


async def test_beside_a_worker_no_locked_job_is_changed_and_none_is_lost(
    utils: WorkerUtils, workers: Workers, jobs: Jobs
) -> None:
    """Every job either ran or was deleted, and no deleted one ran.

    The worker starts with the newest job and the bulk change with the oldest, so that they meet.
    """
    specs = [JobSpec("work", n, max_attempts=1, priority=-n) for n in range(MANY)]
    await utils.add_jobs(specs, return_jobs=False)
    numbers = {row["id"]: int(row["payload"]) for row in await jobs.all()}
    ran: list[int] = []
    deleted: list[int] = []
    started = asyncio.Event()

    async def work(payload: Any) -> None:
        ran.append(payload)
        started.set()
        await asyncio.sleep(0.002)  # timing: so that some are running; how many does not matter

    runner = await workers.start({"work": work}, concurrency=20)
    await asyncio.wait_for(started.wait(), 60)
    report = await utils.complete_jobs(
        filter=JobFilter(task_identifier="work"),
        step_size=200,
        on_step=lambda _report, ids: deleted.extend(ids),
    )
    await jobs.until_gone()
    await workers.stop(runner)
    assert report.changed == len(deleted) == len(set(deleted)) > 0
    assert len(ran) == len(set(ran)) > 0
    assert sorted([*ran, *(numbers[job_id] for job_id in deleted)]) == list(range(MANY))


async def test_beside_a_worker_rescheduling_disturbs_no_running_job(
    utils: WorkerUtils, workers: Workers, jobs: Jobs
) -> None:
    """Each job runs once, although all of them get a new priority again and again."""
    await utils.add_jobs([JobSpec("work", n, max_attempts=1) for n in range(2000)], return_jobs=False)
    ran: list[int] = []

    async def work(payload: Any) -> None:
        ran.append(payload)
        await asyncio.sleep(0)

    runner = await workers.start({"work": work}, concurrency=20, poll_interval=0.2)
    priority = 0
    async with asyncio.timeout(60):
        while await jobs.count():
            priority += 1
            await utils.reschedule_jobs(
                filter=JobFilter(task_identifier="work"), priority=priority % 5, step_size=200
            )
    await workers.stop(runner)
    assert sorted(ran) == list(range(2000))
