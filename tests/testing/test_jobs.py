"""The fixtures in users' tests: run jobs, list jobs, let time pass."""

from __future__ import annotations

import asyncio
import traceback
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from graphile_worker import CronItem, JobHelpers, JobSpec, WorkerUtils, parse_cron_items, run, task
from graphile_worker.errors import ConfigError, InvalidArgumentError, UnknownTaskError
from graphile_worker.hooks import Events
from graphile_worker.hooks.events import CronScheduled, CronStarted, JobSucceeded
from graphile_worker.testing import AddedJobs, EventRecorder, FakeClock, RunJobs

MIDNIGHT = datetime(2030, 6, 1, tzinfo=UTC)


@task
async def note(payload: Any, helpers: JobHelpers) -> None:
    """Does nothing; the result lists the attempts."""


@task
async def fail() -> None:
    raise LookupError("not there")


# -- results -----------------------------------------------------------------------------------------------


async def test_it_runs_everything_that_is_ready_and_leaves_the_rest(
    run_jobs: RunJobs, added_jobs: AddedJobs, graphile_worker_utils: WorkerUtils
) -> None:
    utils = graphile_worker_utils
    await utils.add_jobs([JobSpec(note, number) for number in range(3)])
    await utils.add_jobs([JobSpec(note, number, queue_name="one") for number in (3, 4)])
    await utils.add_job(note, 5, run_at=timedelta(hours=1))
    await utils.add_job("other")
    ran = await run_jobs([note])
    assert sorted(job.payload for job in ran.succeeded) == [0, 1, 2, 3, 4]
    assert (len(ran), ran.failed) == (5, [])
    assert [job.payload for job in await added_jobs(note)] == [5]
    assert [job.task_identifier for job in await added_jobs()] == ["note", "other"]
    assert not await run_jobs([note])


async def test_jobs_that_tasks_add_run_too(run_jobs: RunJobs, graphile_worker_utils: WorkerUtils) -> None:
    async def count_down(payload: int, helpers: JobHelpers) -> None:
        if payload:
            await helpers.add_job("count_down", payload - 1)

    await graphile_worker_utils.add_job("count_down", 3)
    ran = await run_jobs({"count_down": count_down})
    assert [job.payload for job in ran.succeeded] == [3, 2, 1, 0]


async def test_failures_have_their_errors_and_say_whether_they_are_permanent(
    run_jobs: RunJobs, added_jobs: AddedJobs, graphile_worker_utils: WorkerUtils
) -> None:
    await graphile_worker_utils.add_job(fail)
    await graphile_worker_utils.add_job(fail, max_attempts=1)
    await graphile_worker_utils.add_job(note, "well")
    ran = await run_jobs([fail, note])
    assert [job.payload for job in ran.succeeded] == ["well"]
    assert [(type(run.error), run.is_final) for run in ran.failed] == [
        (LookupError, False),
        (LookupError, True),
    ]
    assert len(ran.of(fail)) == len(ran.of("fail")) == 2
    (retried,) = await added_jobs(fail)
    assert (retried.attempts, "not there" in (retried.last_error or "")) == (1, True)


async def test_check_fails_if_a_job_waits_for_an_unknown_task(
    run_jobs: RunJobs, graphile_worker_utils: WorkerUtils
) -> None:
    await graphile_worker_utils.add_job("notte")
    await graphile_worker_utils.add_job("notte")
    await graphile_worker_utils.add_job("of_another_service", queue_name="queue")
    ran = await run_jobs({"note": note, "plain": lambda: None})
    with pytest.raises(UnknownTaskError) as caught:
        ran.check()
    assert str(caught.value).split("\n") == [
        "2 jobs wait for the unknown task 'notte'; did you mean 'note'?",
        "1 job waits for the unknown task 'of_another_service'",
    ]
    assert {task.identifier: task.jobs for task in ran.unknown} == {"notte": 2, "of_another_service": 1}
    assert "<1 job waits for the unknown task 'of_another_service'>" in repr(ran)
    with pytest.raises(UnknownTaskError, match="1 job waits"):
        ran.of("of_another_service").check()
    assert not ran.of("note").check()
    assert ran.check(allow_unknown=True) is ran


async def test_the_fixture_leaves_unknown_names_to_run_jobs(
    graphile_worker_utils: WorkerUtils, caplog: pytest.LogCaptureFixture
) -> None:
    await graphile_worker_utils.add_job("never heard of")
    await graphile_worker_utils.release()
    assert caplog.text == ""


async def test_a_task_that_was_left_out_of_the_run_is_not_unknown(
    run_jobs: RunJobs, graphile_worker_utils: WorkerUtils
) -> None:
    await graphile_worker_utils.add_job(note, 1)
    await graphile_worker_utils.add_job(fail)
    ran = await run_jobs([note])
    assert ran.check().unknown == []


async def test_nor_is_one_whose_jobs_are_not_due_by_the_clock(
    run_jobs: RunJobs, graphile_worker_utils: WorkerUtils, graphile_worker_clock: FakeClock
) -> None:
    await graphile_worker_utils.add_job("later", run_at=timedelta(hours=1))
    (await run_jobs([note])).check()
    with pytest.raises(UnknownTaskError, match="1 job waits for the unknown task 'later'"):
        (await run_jobs([note], until=timedelta(hours=2))).check()


async def test_check_raises_the_error_of_the_task(
    run_jobs: RunJobs, graphile_worker_utils: WorkerUtils
) -> None:
    assert len((await run_jobs([fail])).check()) == 0
    await graphile_worker_utils.add_job(fail, max_attempts=1)  # on a slow machine it would be due again
    with pytest.raises(LookupError, match="not there") as caught:
        (await run_jobs([fail])).check()
    assert caught.traceback[-1].name == "fail"  # the task's own frame
    await graphile_worker_utils.add_jobs([JobSpec(fail), JobSpec(fail)])
    with pytest.raises(ExceptionGroup, match="2 of 2 runs") as group:
        (await run_jobs([fail])).check()
    assert [type(error) for error in group.value.exceptions] == [LookupError, LookupError]
    for error in group.value.exceptions:
        assert traceback.extract_tb(error.__traceback__)[-1].name == "fail"


async def test_the_result_reads_well_in_a_failed_assertion(
    run_jobs: RunJobs, graphile_worker_utils: WorkerUtils
) -> None:
    first = await graphile_worker_utils.add_job(fail)
    second = await graphile_worker_utils.add_job(note, None)
    ran = await run_jobs([fail, note])
    expected = f"JobsRun(<fail {first.id} failed: LookupError('not there')>, <note {second.id} succeeded>)"
    assert repr(ran) == expected
    assert repr(ran[1:]) == f"JobsRun(<note {second.id} succeeded>)"


async def test_a_task_that_hangs_is_named_and_cancelled(
    run_jobs: RunJobs, added_jobs: AddedJobs, graphile_worker_utils: WorkerUtils
) -> None:
    cancelled = asyncio.Event()

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    job = await graphile_worker_utils.add_job("hang")
    with pytest.raises(TimeoutError, match=rf"run_jobs took longer than 5 s; still running: hang {job.id}"):
        await run_jobs([hang], timeout=5)  # timing: long enough for the task to start; it lasts as long
    assert cancelled.is_set()
    assert [waiting.id for waiting in await added_jobs()] == [job.id]


async def test_a_timeout_inside_of_the_test_keeps_its_own_words(
    run_jobs: RunJobs, graphile_worker_utils: WorkerUtils
) -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    await graphile_worker_utils.add_job("hang")
    with pytest.raises(TimeoutError) as raised:
        async with asyncio.timeout(0.5):  # timing: must run out, however far the run has come
            await run_jobs([hang])
    assert "run_jobs" not in str(raised.value)


async def test_it_takes_what_a_worker_takes(run_jobs: RunJobs, graphile_worker_utils: WorkerUtils) -> None:
    class Mailer:
        pass

    mailers = []

    async def send(payload: Any, helpers: JobHelpers) -> None:
        mailers.append(helpers.extension(Mailer))

    recorder = EventRecorder(Events())
    await graphile_worker_utils.add_job("send", flags=["later"])
    assert not await run_jobs([send], forbidden_flags=["later"])
    mailer = Mailer()
    await run_jobs([send], extensions=[mailer], events=recorder.events, concurrency=3)
    assert mailers == [mailer]
    assert recorder.count(JobSucceeded) == 1
    with pytest.raises(ConfigError, match="concurency"):
        await run_jobs([send], concurency=3)  # type: ignore[call-arg]


async def test_failures_are_logged_once(
    run_jobs: RunJobs, graphile_worker_utils: WorkerUtils, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        await graphile_worker_utils.add_job(fail)
        await run_jobs([fail])
    lines = [record for record in caplog.records if "not there" in record.getMessage()]
    assert len(lines) == 2


# -- added jobs --------------------------------------------------------------------------------------------


async def test_waiting_jobs_are_found_by_task_queue_and_key(
    added_jobs: AddedJobs, graphile_worker_utils: WorkerUtils
) -> None:
    utils = graphile_worker_utils
    await utils.add_job(note, 1, queue_name="letters")
    await utils.add_job(note, 2, job_key="welcome")
    failed = await utils.add_job(note, 3)
    await utils.permanently_fail_jobs([failed.id], "no use")
    assert [job.payload for job in await added_jobs(queue="letters")] == [1]
    assert [job.payload for job in await added_jobs(note, key="welcome")] == [2]
    assert [job.payload for job in await added_jobs()] == [1, 2]
    with pytest.raises(TypeError, match="expected a task or its name"):
        await added_jobs(5)


async def test_from_inside_of_a_transaction_one_sees_what_is_not_committed(
    added_jobs: AddedJobs, graphile_worker_utils: WorkerUtils, graphile_worker_database: str
) -> None:
    connection = await asyncpg.connect(graphile_worker_database)
    try:
        transaction = connection.transaction()
        await transaction.start()
        await graphile_worker_utils.add_job(note, 1, connection=connection)
        assert len(await added_jobs(connection=connection)) == 1
        assert await added_jobs() == []
        await transaction.rollback()
    finally:
        await connection.close()


def test_everything_works_without_a_plugin_for_asyncio(
    run_jobs: RunJobs, added_jobs: AddedJobs, graphile_worker_utils: WorkerUtils
) -> None:
    asyncio.run(graphile_worker_utils.add_job(note, 1))
    assert len(asyncio.run(added_jobs(note))) == 1
    assert len(asyncio.run(run_jobs([note])).check()) == 1


# -- time --------------------------------------------------------------------------------------------------


async def test_a_job_waits_until_the_clock_gets_there(
    run_jobs: RunJobs, graphile_worker_clock: FakeClock, graphile_worker_utils: WorkerUtils
) -> None:
    started = graphile_worker_clock.now()
    job = await graphile_worker_utils.add_job(note, 1, run_at=timedelta(days=3))
    assert job.run_at == started + timedelta(days=3)
    assert not await run_jobs([note])
    await graphile_worker_clock.advance(timedelta(days=3))
    assert len(await run_jobs([note])) == 1


@pytest.mark.parametrize("moved", [timedelta(), timedelta(days=400), timedelta(days=-4000)], ids=str)
async def test_a_job_added_by_the_servers_clock_is_due_whatever_the_clock_says(
    run_jobs: RunJobs, added_jobs: AddedJobs, graphile_worker_clock: FakeClock, graphile_worker_database: str,
    moved: timedelta,
) -> None:  # fmt: skip
    """Added by a trigger, or by an application that does not use the test's clock."""

    async def add(payload: int) -> None:
        await connection.execute("select graphile_worker.add_job('fail', to_json($1::int))", payload)

    async def add_another() -> None:
        await add(2)

    graphile_worker_clock.jump(moved)
    connection = await asyncpg.connect(graphile_worker_database)
    try:
        await add(0)
        await add(1)
        await connection.execute("select graphile_worker.add_job('add_another', run_at => $1)", MIDNIGHT)
        ran = await run_jobs([fail])
        # Once each: the clock also decides about the next attempt.
        assert [run.job.payload for run in ran] == [0, 1]
        assert {job.run_at > graphile_worker_clock.now() for job in await added_jobs(fail)} == {True}
        await graphile_worker_clock.set(MIDNIGHT)
        ran = await run_jobs({"add_another": add_another})
        assert len(ran) == 1
        ran = await run_jobs([fail])
        assert 2 in [run.job.payload for run in ran]
    finally:
        await connection.close()


async def test_what_a_task_adds_behind_the_workers_back_runs_in_the_same_drain(
    run_jobs: RunJobs, graphile_worker_clock: FakeClock, graphile_worker_utils: WorkerUtils
) -> None:
    async def first(payload: Any, helpers: JobHelpers) -> None:
        await helpers.query("select graphile_worker.add_job('note')")

    await graphile_worker_utils.add_job("first")
    ran = await run_jobs({"first": first, "note": note})
    assert [run.job.task_identifier for run in ran] == ["first", "note"]


async def test_time_passes_from_one_attempt_to_the_next(
    run_jobs: RunJobs, added_jobs: AddedJobs, graphile_worker_clock: FakeClock,
    graphile_worker_utils: WorkerUtils,
) -> None:  # fmt: skip
    seen: list[float] = []
    started = graphile_worker_clock.now()

    async def flaky() -> None:
        seen.append((graphile_worker_clock.now() - started).total_seconds())
        if len(seen) < 4:
            raise RuntimeError("once more")

    await graphile_worker_utils.add_job("flaky")
    ran = await run_jobs([flaky], until=timedelta(minutes=1))
    assert [run.error is None for run in ran] == [False, False, False, True]
    assert seen == pytest.approx([0, 2.718, 10.107, 30.193], abs=0.001)
    assert graphile_worker_clock.now() == started + timedelta(minutes=1)
    assert await added_jobs() == []


async def test_a_job_that_is_long_overdue_fails_only_once(
    run_jobs: RunJobs,
    added_jobs: AddedJobs,
    graphile_worker_clock: FakeClock,
    graphile_worker_utils: WorkerUtils,
) -> None:
    await graphile_worker_utils.add_job(fail, run_at=timedelta(hours=1))
    await graphile_worker_clock.advance(timedelta(days=30))
    assert len(await run_jobs([fail])) == 1
    (job,) = await added_jobs(fail)
    assert 2 < (job.run_at - graphile_worker_clock.now()).total_seconds() < 3


async def test_recurring_jobs_run_at_their_minutes(
    run_jobs: RunJobs, graphile_worker_clock: FakeClock
) -> None:
    seen: list[datetime] = []

    async def report() -> None:
        seen.append(graphile_worker_clock.now())

    await graphile_worker_clock.set(MIDNIGHT)
    crontab = "0 4 * * * report\n30 4 * * 1 note"
    ran = await run_jobs({"report": report, "note": note}, crontab=crontab, until=timedelta(days=3))
    fours = [MIDNIGHT + timedelta(days=day, hours=4) for day in range(3)]
    assert seen == [job.run_at for job in ran.of("report").succeeded] == fours
    assert [job.payload["_cron"]["ts"] for job in ran.of(note).succeeded] == ["2030-06-03T04:30:00.000Z"]
    # The first and the last minute count, and none counts twice.
    until = MIDNIGHT + timedelta(days=4, hours=4)
    for _ in range(2):
        await run_jobs({"report": report}, crontab="0 4 * * * report", until=until)
    assert seen == [*fours, MIDNIGHT + timedelta(days=3, hours=4), until]


async def test_recurring_jobs_may_be_given_as_items(
    run_jobs: RunJobs, graphile_worker_clock: FakeClock
) -> None:
    items = parse_cron_items([CronItem(task="note", match="*/15 * * * *")])
    await graphile_worker_clock.set(MIDNIGHT + timedelta(minutes=1))
    ran = await run_jobs([note], parsed_cron_items=items, until=timedelta(hours=1))
    assert len(ran) == 4


async def test_recurring_jobs_have_the_options_of_their_task(
    run_jobs: RunJobs, graphile_worker_clock: FakeClock
) -> None:
    seen: list[tuple[int, int]] = []

    @task(max_attempts=4, priority=7)
    async def audit(payload: Any, helpers: JobHelpers) -> None:
        seen.append((helpers.job.max_attempts, helpers.job.priority))

    await graphile_worker_clock.set(MIDNIGHT + timedelta(minutes=1))
    await run_jobs([audit], crontab="0 * * * * audit", until=timedelta(hours=1))
    assert seen == [(4, 7)]


async def test_time_cannot_pass_without_a_clock_or_backwards(run_jobs: RunJobs) -> None:
    with pytest.raises(ConfigError, match="add the fixture graphile_worker_clock"):
        await run_jobs([note], until=timedelta(days=1))
    with pytest.raises(ConfigError, match="set it with until="):
        await run_jobs([note], crontab="* * * * * note")


async def test_the_end_must_be_a_moment_to_come(run_jobs: RunJobs, graphile_worker_clock: FakeClock) -> None:
    with pytest.raises(InvalidArgumentError, match="in the past"):
        await run_jobs([note], until=graphile_worker_clock.now() - timedelta(seconds=1))
    with pytest.raises(InvalidArgumentError, match="no time zone"):
        await run_jobs([note], until=datetime(2030, 1, 1))


async def test_a_worker_in_the_background_and_its_schedule_follow_the_clock(
    graphile_worker_clock: FakeClock, graphile_worker_database: str
) -> None:
    await graphile_worker_clock.set(MIDNIGHT + timedelta(seconds=30))
    recorder = EventRecorder()
    async with run(
        connection_string=graphile_worker_database, task_list=[note], crontab="* * * * * note",
        clock=graphile_worker_clock, use_local_time=True, events=recorder.events, handle_signals=False,
    ):  # fmt: skip
        await recorder.wait_for(CronStarted)
        await graphile_worker_clock.advance(timedelta(minutes=1))
        await recorder.wait_for(CronScheduled)
        succeeded = await recorder.wait_for(JobSucceeded)
    assert succeeded.job.payload["_cron"]["ts"] == "2030-06-01T00:01:00.000Z"
