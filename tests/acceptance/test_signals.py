"""Signals to a worker process: graceful and forced shutdown, and the exit status."""

from __future__ import annotations

import signal
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
import pytest

from graphile_worker.runner.signals import SignalHandling
from support.worker_process import Start, let_go, until_disconnected
from support.working import Jobs, until


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGTERM, 143),
        (signal.SIGINT, 130),
        (signal.SIGUSR2, 128 + signal.SIGUSR2),
    ],
)
@pytest.mark.compat("EXT-14")
async def test_the_first_signal_lets_the_running_job_end_and_the_process_ends_by_that_signal(
    start: Start, database_url: str, jobs: Jobs, folder: Path, number: signal.Signals, status: int
) -> None:
    await jobs.add("wait_for_test")
    worker = start(url=database_url).wait_for("started\n")
    worker.send(number)
    worker.wait_for(f"got {number.name}; waiting for running jobs to finish")
    let_go(folder)
    assert worker.ended() == status
    assert worker.was_killed_by() is number
    assert "finished\n" in worker.output
    assert await jobs.count() == 0
    await until_disconnected(jobs)


async def test_a_second_signal_within_five_seconds_is_ignored_and_logged(
    start: Start, database_url: str, jobs: Jobs, folder: Path
) -> None:
    assert SignalHandling.ignore_for == 5.0  # a minute here, because signals are slow on a busy machine
    await jobs.add("wait_for_test")
    worker = start(url=database_url, ignore_for=60.0).wait_for("started\n")
    worker.send(signal.SIGTERM)
    worker.wait_for("got SIGTERM; waiting for running jobs")
    worker.send(signal.SIGTERM)
    worker.wait_for("SIGTERM ignored: the worker is stopping already")
    worker.send(signal.SIGINT)
    worker.wait_for("SIGINT ignored: the worker is stopping already")
    let_go(folder)
    assert worker.ended() == 143
    assert "finished\n" in worker.output
    assert await jobs.count() == 0


async def test_a_later_second_signal_interrupts_and_the_job_says_so_without_losing_an_attempt(
    start: Start, database_url: str, jobs: Jobs
) -> None:
    await jobs.add("sleep_long")
    worker = start(url=database_url, ignore_for=0.0).wait_for("started")
    worker.send(signal.SIGTERM)
    worker.wait_for("got SIGTERM; waiting for running jobs")
    worker.send(signal.SIGTERM)
    assert worker.ended() == 143
    assert "got SIGTERM again; stopping now" in worker.output
    job = await jobs.one()
    assert job["last_error"] == "Forced worker shutdown due to SIGTERM"
    assert (job["attempts"], job["locked_by"]) == (0, None)
    assert job["run_at"] <= datetime.now(UTC)
    assert await jobs.locked() == 0


async def test_the_process_ends_with_the_first_signal_also_when_the_second_was_another(
    start: Start, database_url: str, jobs: Jobs
) -> None:
    await jobs.add("sleep_long")
    worker = start(url=database_url, ignore_for=0.0).wait_for("started")
    worker.send(signal.SIGINT)
    worker.wait_for("got SIGINT; waiting for running jobs")
    worker.send(signal.SIGTERM)
    assert worker.ended() == 130
    job = await jobs.one()
    assert job["last_error"] == "Forced worker shutdown due to SIGTERM"


async def test_a_third_signal_ends_the_process_whatever_it_does(
    start: Start, database_url: str, jobs: Jobs
) -> None:
    await jobs.add("swallow")
    worker = start(url=database_url, ignore_for=0.0).wait_for("started")
    for said in ("got SIGTERM; waiting for running jobs", "got SIGTERM again; stopping now"):
        worker.send(signal.SIGTERM)
        worker.wait_for(said)
    worker.send(signal.SIGTERM)
    assert worker.ended() == 143
    assert worker.was_killed_by() is signal.SIGTERM


async def test_an_idle_worker_stops_at_once(start: Start, database_url: str, jobs: Jobs) -> None:
    worker = start(url=database_url).ready()
    worker.send(signal.SIGTERM)
    assert worker.ended() == 143
    assert "stopped; all outcomes are written" in worker.output
    assert "Traceback" not in worker.output
    await until_disconnected(jobs)


async def test_once_ends_by_the_signal_too_and_leaves_the_rest(
    start: Start, database_url: str, jobs: Jobs, folder: Path
) -> None:
    for _ in range(3):
        await jobs.add("wait_for_test")
    for left, number in ((2, signal.SIGTERM), (1, signal.SIGINT)):
        (folder / "go_on").unlink(missing_ok=True)
        worker = start("--once", url=database_url).wait_for("started\n")
        worker.send(number)
        worker.wait_for(f"got {number.name}; waiting for running jobs")
        let_go(folder)
        assert worker.ended() == 128 + number
        assert worker.was_killed_by() is number
        assert worker.output.count("started\n") == worker.output.count("finished\n") == 1
        assert await jobs.count() == left
        assert await jobs.locked() == 0


async def test_once_ends_with_status_0_when_nothing_stops_it(
    start: Start, database_url: str, jobs: Jobs
) -> None:
    await jobs.add("sleep_a_little", {"seconds": 0})
    assert start("--once", url=database_url).ended() == 0
    assert await jobs.count() == 0


async def test_an_announced_breaking_migration_stops_the_worker_with_status_57(
    start: Start, database_url: str, jobs: Jobs
) -> None:
    await jobs.add("sleep_a_little", {"seconds": 0.3})
    worker = start("-j", 2, url=database_url).wait_for("started")
    worker.wait_for("listening for new jobs")
    for harmless in (
        '{"migrationNumber": 20, "breaking": true}',
        '{"migrationNumber": 999999, "breaking": true}',  # not in the ledger
        '{"migrationNumber": 21, "breaking": false}',
        "garbage",
    ):
        await jobs.connection.execute("select pg_notify('worker:migrate', $1)", harmless)
    await jobs.add("sleep_a_little", {"seconds": 0})
    worker.wait_for("completed", times=1)  # it ignored the other announcements
    breaking = '{"migrationNumber": 21, "breaking": true}'
    await jobs.connection.execute("insert into graphile_worker.migrations (id, breaking) values (21, true)")
    await jobs.connection.execute("select pg_notify('worker:migrate', $1)", breaking)
    assert worker.ended() == 57
    assert "install a newer version of graphile-worker" in worker.output
    assert await jobs.count() == 0
    await until_disconnected(jobs)


async def test_a_worker_that_died_of_an_error_ends_with_status_1(
    start: Start, database_url: str, jobs: Jobs
) -> None:
    """A-14: a pool that dies of an error is not a success."""
    await jobs.add("sleep_a_little", {"seconds": 0}, queue="one")
    await jobs.connection.execute("drop table graphile_worker._private_job_queues cascade")
    worker = start("--once", url=database_url)
    assert worker.ended() == 1
    assert "graphile-worker: error: " in worker.output


async def test_several_processes_stop_gracefully_when_their_parent_is_told_to(
    start: Start, database_url: str, jobs: Jobs, folder: Path
) -> None:
    for _ in range(2):
        await jobs.add("wait_for_test")  # one for each worker
    parent = start("--processes", 2, url=database_url)
    parent.wait_for("started\n", times=2)
    parent.send(signal.SIGTERM)
    parent.wait_for("got SIGTERM; waiting for running jobs", times=2)
    let_go(folder)
    assert parent.ended() == 143
    assert parent.output.count("finished\n") == 2
    assert parent.output.count("stopped; all outcomes are written") == 2
    assert await jobs.count() == 0
    await until_disconnected(jobs)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_while_the_worker_starts_ends_it_without_a_traceback(
    start: Start, database_url: str, jobs: Jobs, number: signal.Signals
) -> None:
    async def is_waiting() -> bool:
        return await jobs.connection.fetchval(
            "select count(*) > 0 from pg_stat_activity "
            "where datname = current_database() and wait_event_type = 'Lock'"
        )

    holder = await asyncpg.connect(database_url)
    try:
        await holder.execute("begin; lock table graphile_worker.migrations in access exclusive mode")
        worker = start(url=database_url)
        await until(is_waiting)
        worker.send(number)
        assert worker.ended() == 128 + number
    finally:
        await holder.close()
    assert worker.was_killed_by() is number
    assert "Traceback" not in worker.output
    assert "error" not in worker.output


# -- a closed output -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["talkative", "silent"])
async def test_a_reader_that_goes_away_stops_the_worker_like_a_signal(
    start: Start, database_url: str, jobs: Jobs, task: str
) -> None:
    """`talkative` logs from a thread, so the thread gets the BrokenPipeError."""
    await jobs.add(task)
    worker = start(url=database_url, GRAPHILE_WORKER_GRACEFUL_SHUTDOWN_ABORT_TIMEOUT="0.2")
    worker.wait_for("started")
    worker.close_output()
    if task == "silent":  # the log lines of these jobs hit the broken pipe
        await jobs.add_many("record_in_file", 5)
    assert worker.ended() == 128 + signal.SIGPIPE
    assert worker.was_killed_by() is signal.SIGPIPE
    assert await jobs.locked() == 0
    assert {row["last_error"] for row in await jobs.all()} <= {None}
