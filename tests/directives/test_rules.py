"""The rules of `@task` at work: what is written, logged, counted and told."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from graphile_worker import (
    FailedJob,
    GiveUp,
    Job,
    JobHelpers,
    Retry,
    RetryIn,
    Snooze,
    WorkerUtils,
    make_worker_utils,
    task,
)
from graphile_worker.errors import JobCancelledError
from graphile_worker.hooks import CallNext, Expired, Hooks, Outcome, Snoozed
from graphile_worker.hooks.events import JobFailed
from graphile_worker.options import JobFilter
from graphile_worker.testing.results import EventRecorder
from support.proxy import proxy_to
from support.working import PATIENCE, SCHEMA, Jobs, Workers, headline, until

HOUR = timedelta(hours=1)


@pytest.fixture
async def utils(database_url: str) -> AsyncIterator[WorkerUtils]:
    async with make_worker_utils(connection_string=database_url) as utils:
        yield utils


async def wait_left(jobs: Jobs) -> float:
    return float(
        await jobs.connection.fetchval(
            f"select extract(epoch from run_at - now()) from {SCHEMA}._private_jobs"
        )
    )


async def make_old(jobs: Jobs, *, hours: int) -> None:
    await jobs.connection.execute(
        f"update {SCHEMA}._private_jobs set run_at = now() - $1 * interval '1 hour', "
        "created_at = now() - $1 * interval '1 hour'",
        hours,
    )


async def test_a_policy_sets_the_time_of_the_retry(
    jobs: Jobs, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    @task(retry=Retry.fixed(6000))
    async def fail() -> None:
        raise ValueError("no")

    await jobs.add("fail")
    with caplog.at_level(logging.INFO, "graphile_worker"):
        await workers.once([fail])
    assert 5900 < await wait_left(jobs) <= 6000
    assert "on attempt 1 of 25: ValueError: no; retrying in 1 h 40 min" in caplog.text


async def test_a_time_is_written_as_it_is(jobs: Jobs, workers: Workers) -> None:
    until_then = datetime.now(UTC).replace(microsecond=0) + HOUR

    @task
    async def wait_until() -> None:
        raise Snooze(until=until_then)

    await jobs.add("wait_until")
    await workers.once([wait_until])
    assert abs((await jobs.one())["run_at"] - until_then) < timedelta(seconds=60)


async def test_an_error_that_is_not_retried_fails_the_job_at_once(
    jobs: Jobs, workers: Workers, caplog: pytest.LogCaptureFixture, recorder: EventRecorder
) -> None:
    @task(dont_retry=ValueError, max_attempts=7)
    async def fail() -> None:
        raise ValueError("no")

    await jobs.add("fail")
    with caplog.at_level(logging.INFO, "graphile_worker"):
        await workers.once([fail], events=recorder.events)
    row = await jobs.one()
    assert (row["attempts"], row["max_attempts"], row["is_available"]) == (7, 7, False)
    line = "on attempt 1 of 7: ValueError: no; it will not be retried (the task does not retry this error)"
    assert line in caplog.text
    (event,) = recorder.of(JobFailed)
    assert (event.is_cut_off, event.given_up) == (False, "the task does not retry this error")


@pytest.mark.parametrize("is_final", [False, True])
async def test_the_time_of_a_permanent_failure_is_known(
    jobs: Jobs, workers: Workers, utils: WorkerUtils, is_final: bool
) -> None:
    """It is computed from run_at and attempts, which an own delay must not spoil."""

    @task(retry=Retry.fixed(5))
    async def fail(payload: Any) -> None:
        raise RetryIn(7000) if payload["last"] else GiveUp("no")

    began = datetime.now(UTC) - timedelta(seconds=1)
    await jobs.add("fail", {"last": is_final}, max_attempts=1 if is_final else 3)
    await jobs.connection.execute(f"update {SCHEMA}._private_jobs set updated_at = now() - interval '2 h'")
    await workers.once([fail])
    assert len(await utils.jobs.list(JobFilter(failed_since=began))) == 1
    assert len(await utils.jobs.list(JobFilter(failed_since=datetime.now(UTC) + HOUR))) == 0
    assert len(await utils.jobs.list(JobFilter(failed_until=began))) == 0


# -- expiry ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_job_that_waited_too_long_is_deleted(
    jobs: Jobs,
    workers: Workers,
    utils: WorkerUtils,
    caplog: pytest.LogCaptureFixture,
    recorder: EventRecorder,
    kind: str,
) -> None:
    ran: list[str] = []

    if kind == "async":

        @task(expires=HOUR)
        async def code(payload: str) -> None:
            ran.append(payload)

    else:

        @task(expires=HOUR)
        def code(payload: str) -> None:
            ran.append(payload)

    late = await jobs.add("code", "late", queue="q", max_attempts=1)
    kept = await jobs.add("code", "late and kept", flags=["py:keep"], max_attempts=1)
    await make_old(jobs, hours=2)
    await jobs.add("code", "in time", queue="q", max_attempts=1)
    await jobs.add("code", "added late", run_at=datetime.now(UTC) - 2 * HOUR, max_attempts=1)
    with caplog.at_level(logging.INFO, "graphile_worker"):
        await workers.once([code], events=recorder.events, history="failed" if kind == "async" else "none")
    assert sorted(ran) == ["added late", "in time"]
    assert await jobs.count() == 0
    assert await jobs.locked() == 0
    assert "expired: it waited 2 h, and at most 1 h is allowed; deleted" in caplog.text
    assert [event.name for event in recorder.seen if "expired" in event.name] == ["job:expired"] * 2
    ends = await jobs.connection.fetch(f"select job_id, state from {SCHEMA}._private_py_history")
    assert {tuple(row) for row in ends} == {
        (job_id, "expired") for job_id in ([late, kept] if kind == "async" else [kept])
    }
    with pytest.raises(JobCancelledError, match=f"job {kept} has expired, so its task was not called"):
        await utils.wait_for(kept, timeout=PATIENCE)


# -- what is told and counted ------------------------------------------------------------------------------


async def test_a_snooze_is_neither_completed_nor_failed(
    jobs: Jobs, workers: Workers, caplog: pytest.LogCaptureFixture, recorder: EventRecorder
) -> None:
    @task
    async def busy() -> Snooze:
        return Snooze(600, "the printer is busy")

    await jobs.add("busy")
    with caplog.at_level(logging.INFO, "graphile_worker"):
        await workers.once([busy], events=recorder.events)
    names = [event.name for event in recorder.seen if event.name.startswith("job:")]
    assert names == ["job:start", "job:snoozed"]
    assert "was snoozed for 10 min after" in caplog.text
    assert ": the printer is busy; the attempt does not count" in caplog.text
    statistics = await jobs.connection.fetch(f"select * from {SCHEMA}._private_py_minutes")
    assert [dict(row) for row in statistics] == []


async def test_snoozing_an_old_job_is_a_warning(
    jobs: Jobs, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    @task
    async def busy() -> None:
        raise Snooze(600)

    await jobs.add("busy")
    await jobs.connection.execute(f"update {SCHEMA}._private_jobs set created_at = now() - interval '50 h'")
    with caplog.at_level(logging.WARNING, "graphile_worker"):
        await workers.once([busy])
    assert "(it was added 2 days ago; give_up_after sets a limit)" in caplog.text


async def test_a_kept_job_counts_as_completed(jobs: Jobs, workers: Workers) -> None:
    @task(keep=True)
    async def work() -> int:
        return 1

    await jobs.add("work")
    await workers.once([work])
    row = await jobs.connection.fetchrow(
        f"select sum(completed) as completed, sum(failed) as failed from {SCHEMA}._private_py_minutes"
    )
    assert (row["completed"], row["failed"]) == (1, 0)


async def test_interceptors_see_the_directives(jobs: Jobs, workers: Workers) -> None:
    seen: list[tuple[str, Outcome]] = []
    hooks = Hooks()

    @hooks.after_run
    def note(job: Job, outcome: Outcome) -> None:
        seen.append(("after", outcome))

    @hooks.around_run
    async def around(job: Job, call_next: CallNext) -> Outcome:
        outcome = await call_next()
        seen.append(("around", outcome))
        return outcome

    @task
    async def busy() -> None:
        raise Snooze(600)

    @task(expires=1)
    async def late() -> None:
        raise AssertionError

    await jobs.add("busy")
    await workers.once([busy], hooks=hooks)
    assert seen == [("after", Snoozed(600.0)), ("around", Snoozed(600.0))]
    assert (await jobs.one())["attempts"] == 0
    await jobs.connection.execute(f"delete from {SCHEMA}._private_jobs")
    await jobs.add("late")
    await make_old(jobs, hours=1)
    await workers.once([late], hooks=hooks)
    assert isinstance(seen[-1][1], Expired)
    assert await jobs.count() == 0


# -- on_failure --------------------------------------------------------------------------------------------


async def test_the_handler_gets_the_failed_job(jobs: Jobs, workers: Workers, utils: WorkerUtils) -> None:
    told: list[FailedJob] = []

    @task(queue_name="alerts", max_attempts=1)
    async def alert(failed: FailedJob) -> None:
        told.append(failed)

    @task(on_failure=alert)
    async def charge(payload: dict[str, int], helpers: JobHelpers) -> None:
        raise ValueError(f"attempt {helpers.job.attempts}")

    job = await utils.add_job(charge, {"amount": 5}, job_key="k", max_attempts=2)
    await workers.once([charge])
    assert await jobs.count() == 1
    await jobs.make_due()
    await workers.once([charge])
    _, added = await jobs.all()
    assert (added["queue_name"], added["max_attempts"]) == ("alerts", 1)
    await workers.once([charge, alert])
    (failed,) = told
    assert (failed.job_id, failed.task_identifier, failed.payload) == (job.id, "charge", {"amount": 5})
    assert (failed.attempts, failed.max_attempts, failed.key) == (2, 2, "k")
    assert failed.error.startswith("ValueError: attempt 2\n")
    assert failed.created_at == job.created_at


async def test_failure_and_handler_are_written_together(
    jobs: Jobs, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the handler's job cannot be added, the failure is written without it, and says so."""

    @task(on_failure="alert", max_attempts=1)
    async def fail() -> None:
        raise ValueError("no")

    await jobs.connection.execute(
        f"""
        create function refuse() returns trigger language plpgsql as
          $$begin raise exception 'no alerts' using errcode = 'check_violation'; end$$;
        create trigger refuse before insert on {SCHEMA}._private_jobs
          for each row when (new.payload->>'task_identifier' = 'fail') execute function refuse();
        """
    )
    await jobs.add("fail")
    await workers.once([fail])
    row = await jobs.one()
    assert not row["is_available"]
    assert headline(row).startswith("Its outcome could not be written: no alerts")


async def test_a_poison_job_tells_the_handler(jobs: Jobs, workers: Workers, utils: WorkerUtils) -> None:
    from recovery.dead import QUICK, Graveyard

    @task(on_failure="alert")
    async def poison() -> None: ...

    job_id = await jobs.add("poison")
    graveyard = Graveyard(jobs.connection)
    await graveyard.bury("dead-pool")
    await graveyard.give("dead-pool", job_id)
    await workers.start([poison], **{**QUICK, "max_recoveries": 0})

    async def is_told() -> bool:
        return any(row["identifier"] == "alert" for row in await jobs.all())

    await until(is_told)
    (alert,) = (json.loads(row["payload"]) for row in await jobs.all() if row["identifier"] == "alert")
    assert alert["job_id"] == job_id
    assert alert["error"].startswith("Given up: the worker that ran this job died")


# -- retry -----------------------------------------------------------------------------------------------


async def test_retry_sends_failed_jobs_back(jobs: Jobs, workers: Workers, utils: WorkerUtils) -> None:
    @task
    async def pay() -> None:
        raise GiveUp("the bank is closed")

    @task
    async def other() -> None:
        raise GiveUp("no")

    await jobs.add("pay")
    await jobs.add("other")
    await jobs.add("pay", run_at=datetime.now(UTC) + HOUR)
    await workers.once([pay, other])
    dry = await utils.jobs.retry(pay, dry_run=True)
    assert (dry.changed, dry.tasks) == (1, {"pay": 1})
    assert (await utils.jobs.retry(pay, since=datetime.now(UTC) + HOUR)).changed == 0
    assert (await utils.jobs.retry("pay", since=datetime.now(UTC) - HOUR, error="CLOSED")).changed == 1
    back, still, _ = await jobs.all()
    assert (back["attempts"], back["is_available"], still["is_available"]) == (0, True, False)
    assert (await utils.jobs.retry()).tasks == {"other": 1}


@pytest.mark.parametrize("lost", [b"COMMIT", b"BEGIN"])
async def test_a_write_whose_answer_is_lost_tells_the_handler_once(
    jobs: Jobs, workers: Workers, database_url: str, lost: bytes
) -> None:
    with tempfile.TemporaryDirectory() as folder:  # paths of sockets must be short
        async with proxy_to(database_url, Path(folder)) as (proxy, url):

            @task(on_failure="alert")
            async def fail() -> None:
                proxy.needle = lost  # the next transaction is that of the outcome
                raise GiveUp("no")

            runner = await workers.start([fail], connection_string=url, recovery=False, statistics=False)
            await jobs.add("fail")

            async def is_told() -> bool:
                return await jobs.count() == 2 and await jobs.locked() == 0

            await until(is_told)
            await workers.stop(runner)
            assert proxy.cuts == 1
    assert [row["identifier"] for row in await jobs.all()] == ["fail", "alert"]


@pytest.mark.parametrize("has_time", [True, False])
async def test_the_clock_of_a_test_goes_for_snoozes_and_retries(
    graphile_worker_clock: Any, graphile_worker_utils: Any, run_jobs: Any, has_time: bool
) -> None:
    clock = graphile_worker_clock
    snoozed: set[int] = set()

    @task(retry=Retry.fixed(HOUR))
    async def later(payload: Any, helpers: JobHelpers) -> None:
        if helpers.job.last_error is not None:
            return
        if helpers.job.id in snoozed:
            raise ValueError("no")
        snoozed.add(helpers.job.id)
        raise Snooze(until=clock.now() + HOUR) if has_time else Snooze(HOUR)

    await graphile_worker_utils.add_job(later, {})
    await clock.advance(timedelta(days=30))
    await graphile_worker_utils.add_job(later, {})
    assert len((await run_jobs([later])).snoozed) == 2
    await clock.advance(timedelta(minutes=59))
    assert not await run_jobs([later])
    await clock.advance(timedelta(minutes=1))
    assert len((await run_jobs([later])).failed) == 2
    await clock.advance(timedelta(minutes=59))
    assert not await run_jobs([later])
    await clock.advance(timedelta(minutes=1))
    assert len((await run_jobs([later])).succeeded) == 2
