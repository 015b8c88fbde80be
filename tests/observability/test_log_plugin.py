"""The lines of the log, their levels, and that disabled lines cost nothing."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

import pytest

from graphile_worker.errors import BatchFailureError, ConfigError, PayloadError
from graphile_worker.hooks import Events, Hooks, events
from graphile_worker.logging.configure import TextFormatter
from graphile_worker.logging.log_plugin import LogPlugin
from graphile_worker.values.attempts import back_off
from graphile_worker.values.job import Job
from graphile_worker.values.spec import CronJob
from graphile_worker.values.text import duration

NOW = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)


def make_job(**values: Any) -> Job:
    instant = NOW.timestamp()
    defaults: dict[str, Any] = {
        "id": 7, "task_identifier": "send_email", "raw_payload": "{}", "priority": 0, "raw_run_at": instant,
        "attempts": 1, "max_attempts": 25, "last_error": None, "raw_created_at": instant,
        "raw_updated_at": instant, "key": None, "raw_locked_at": instant, "locked_by": "pool", "revision": 0,
        "raw_flags": None, "task_id": 1, "job_queue_id": None,
    }  # fmt: skip
    return Job(**(defaults | values))


class Collected(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def lines(self) -> list[str]:
        return [f"{record.levelname} {record.getMessage()}" for record in self.records]


class Log:
    """A logger of its own, its records, and the events of a plugin that writes to it."""

    def __init__(self, level: int, environ: dict[str, str]) -> None:
        self.logger = logging.Logger("test_log", level)
        self.logger.manager = logging.Manager(self.logger)  # type: ignore[arg-type]
        self.collected = Collected()
        self.logger.addHandler(self.collected)
        self.plugin = LogPlugin(self.logger, environ=environ)
        self.events = Events()
        Hooks(events=self.events, plugins=[self.plugin])

    @property
    def lines(self) -> list[str]:
        return self.collected.lines


@pytest.fixture
def log() -> Log:
    return Log(logging.INFO, {})


def test_success_is_one_line_at_info(log: Log) -> None:
    log.events.emit(events.JobSucceeded(worker_id="w", job=make_job(), duration=0.0123))
    assert log.lines == ["INFO task send_email (job 7) completed in 12 ms"]
    record = log.collected.records[0]
    assert (record.task_identifier, record.job_id, record.worker_id) == ("send_email", 7, "w")  # type: ignore[attr-defined]
    assert (record.pool_id, record.attempt, record.max_attempts) == ("pool", 1, 25)  # type: ignore[attr-defined]
    assert record.duration_ms == 12.3  # type: ignore[attr-defined]


def test_a_failure_is_a_warning_with_the_attempt_and_the_back_off(log: Log) -> None:
    job = make_job(attempts=2)
    log.events.emit(events.JobErrored(worker_id="w", job=job, error=ValueError("boom"), duration=1.5))
    assert log.lines == [
        "WARNING task send_email (job 7) failed after 1.5 s on attempt 2 of 25: ValueError: boom; "
        "retrying in 7.4 s"
    ]
    record = log.collected.records[0]
    assert record.retry_in_s == 7.389  # type: ignore[attr-defined]


def test_the_last_failure_is_one_line_although_it_has_two_events(log: Log) -> None:
    job = make_job(attempts=3, max_attempts=3)
    error = RuntimeError("no")
    log.events.emit(events.JobErrored(worker_id="w", job=job, error=error, duration=0))
    log.events.emit(events.JobFailed(worker_id="w", job=job, error=error, duration=0))
    assert len(log.lines) == 1
    assert log.lines[0].startswith(
        "ERROR task send_email (job 7) permanently failed after 0 s on attempt 3 of 3: RuntimeError: no"
    )


def test_failures_of_a_batch_say_how_many_items_failed(log: Log) -> None:
    parts = [ValueError("a"), ValueError("b")]
    log.events.emit(
        events.JobErrored(
            worker_id="w", job=make_job(), error=ValueError("a\nb"), duration=0, batch_job_errors=parts
        )
    )
    assert "2 items of the batch: ValueError: a | ValueError: b; retrying in 2.7 s" in log.lines[0]


def test_an_interrupted_job_is_said_to_be_returned(log: Log) -> None:
    log.events.emit(events.JobInterrupted(worker_id="w", job=make_job(), error=TimeoutError("grace is over")))
    assert log.lines == [
        "INFO task send_email (job 7) was interrupted: TimeoutError: grace is over; returned to the queue "
        "without losing an attempt"
    ]


TRACEBACK = 'Traceback (most recent call last):\n  File "t.py", line 3, in t\n\nKeyError: 1'


@pytest.mark.parametrize(("attempts", "level"), [(1, "WARNING"), (3, "ERROR")])
def test_a_failed_task_is_logged_with_its_traceback(log: Log, attempts: int, level: str) -> None:
    job = make_job(attempts=attempts, max_attempts=3)
    error = KeyError(1)
    kinds: list[Any] = [events.JobErrored, events.JobFailed] if level == "ERROR" else [events.JobErrored]
    for kind in kinds:
        log.events.emit(kind(worker_id="w", job=job, error=error, duration=0, traceback=TRACEBACK))
    (record,) = log.collected.records
    assert record.levelname == level
    # Every formatter prints it, also one of the user.
    assert logging.Formatter().format(record).endswith(f"\n{TRACEBACK}")
    assert TextFormatter().format(record).splitlines()[1:] == [
        "    Traceback (most recent call last):",
        '      File "t.py", line 3, in t',
        "",
        "    KeyError: 1",
    ]


def test_an_error_without_frames_is_not_said_twice(log: Log) -> None:
    error = PayloadError("no such field")
    log.events.emit(
        events.JobErrored(worker_id="w", job=make_job(), error=error, duration=0, traceback="no such field")
    )
    (record,) = log.collected.records
    assert TextFormatter().format(record).count("no such field") == 1


def test_the_record_of_a_failure_names_the_code_that_logs_it(log: Log) -> None:
    log.events.emit(events.JobErrored(worker_id="w", job=make_job(), error=ValueError("no"), duration=0))
    assert (log.collected.records[0].module, log.collected.records[0].funcName) == ("log_plugin", "_errored")


def test_tracebacks_of_other_errors_appear_at_debug_level_only() -> None:
    error = OSError("gone")
    for level, expected in ((logging.INFO, None), (logging.DEBUG, error)):
        log = Log(level, {})
        log.events.emit(events.PoolListenError(pool_id="p", error=error))
        info = log.collected.records[0].exc_info
        assert (info[1] if info else None) is expected


def test_a_logger_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"logger must be a logging\.Logger, not LoggerAdapter"):
        LogPlugin(logging.LoggerAdapter(logging.getLogger("x"), {}))  # type: ignore[arg-type]


def test_successful_jobs_are_not_observed_when_their_level_is_off() -> None:
    log = Log(logging.WARNING, {})
    for kind in (events.JobStarted, events.JobSucceeded, events.JobCompleted, events.WorkerGetJobStart):
        assert not log.events.wants(kind)
    assert log.events.wants(events.JobErrored)
    assert Log(logging.INFO, {}).events.wants(events.JobSucceeded)
    assert not Log(logging.INFO, {}).events.wants(events.JobStarted)
    assert Log(logging.DEBUG, {}).events.wants(events.JobStarted)


def test_success_can_be_kept_out_of_the_log() -> None:
    log = Log(logging.INFO, {"NO_LOG_SUCCESS": "1"})
    assert not log.events.wants(events.JobSucceeded)
    assert not log.events.wants(events.PoolListenSuccess)
    assert log.events.wants(events.JobErrored)


def test_the_ready_line_says_what_runs_where(log: Log) -> None:
    log.plugin.ready(
        version="1.2",
        pool_id="p",
        tasks=["b", "a"],
        cron_items=1,
        concurrency=4,
        database="db on host",
        schema="s",
    )
    assert log.lines == [
        "INFO ready: graphile-worker 1.2, 2 tasks (a, b), 1 recurring job, 4 jobs at a time, "
        "database db on host, schema s"
    ]
    assert log.collected.records[0].tasks == ["a", "b"]  # type: ignore[attr-defined]


EVERY_LINE: list[tuple[events.Event, str]] = [
    (events.PoolListenSuccess(pool_id="p"), "INFO connected; listening for new jobs"),
    (
        events.PoolListenError(pool_id="p", error=OSError("gone")),
        "WARNING cannot listen for new jobs: OSError: gone; reconnecting, polling until then",
    ),
    (
        events.PoolFatalError(pool_id="p", error=OSError("gone"), action="completeJob"),
        "ERROR the worker cannot continue (completeJob): OSError: gone; stopping",
    ),
    (
        events.WorkerFatalError(worker_id="w", error=KeyError("x")),
        "ERROR slot stopped by an error: KeyError: 'x'",
    ),
    (
        events.GracefulShutdown(signal="SIGTERM"),
        "INFO got SIGTERM; waiting for running jobs to finish; send it again after 5 s to cancel them",
    ),
    (events.ForcefulShutdown(signal="SIGINT"), "WARNING got SIGINT again; stopping now"),
    (events.PoolGracefulShutdown(pool_id="p", message="because"), "INFO stopping: because"),
    (events.PoolGracefulShutdownComplete(pool_id="p"), "INFO stopped; all outcomes are written"),
    (
        events.PoolGracefulShutdownWorkerError(pool_id="p", error=TimeoutError(), job=make_job()),
        "WARNING task send_email (job 7) did not end in time: TimeoutError",
    ),
    (
        events.PoolGracefulShutdownError(pool_id="p", error=OSError("gone")),
        "ERROR could not stop cleanly: OSError: gone; jobs may still be locked by p",
    ),
    (events.PoolForcefulShutdown(pool_id="p", message="now"), "WARNING forced shutdown: now"),
    (
        events.PoolForcefulShutdownComplete(pool_id="p"),
        "WARNING forced shutdown complete; all jobs are unlocked",
    ),
    (
        events.PoolForcefulShutdownError(pool_id="p", error=OSError("gone")),
        "ERROR forced shutdown failed: OSError: gone; jobs may still be locked by p",
    ),
    (
        events.ResetLockedFailure(pool_id="p", error=OSError("gone"), delay=500),
        "WARNING clearing stale locks failed: OSError: gone; retrying in 8 min 20 s",
    ),
    (events.CronStarted(start=NOW), "INFO scheduling recurring jobs"),
    (
        events.CronScheduled(
            timestamp=NOW,
            jobs_and_identifiers=[CronJob("t", {}, identifier="nightly")],
        ),
        "INFO added 1 job due at 2030-01-01 12:00 UTC: nightly",
    ),
    (
        events.CronBackfill(
            timestamp=NOW,
            items_to_backfill=[
                events.CronBackfillItem(
                    identifier="nightly",
                    job=CronJob("t", {}, identifier="nightly"),
                    known_since=NOW,
                    last_execution=None,
                )
            ],
        ),
        "INFO backfilling 1 job missed at 2030-01-01 12:00 UTC: nightly",
    ),
    (
        events.CronPrematureTimer(current_timestamp=NOW, expected_timestamp=NOW.replace(second=5)),
        "WARNING the clock moved back; waiting 5 s for the next minute",
    ),
    (
        events.CronOverdueTimer(current_timestamp=NOW.replace(minute=3), expected_timestamp=NOW),
        "WARNING 3 min late, after a pause or a clock change; catching up",
    ),
    (
        events.WorkerLost(pool_id="p", lost_pool_id="q", dead_in=12.0),
        "WARNING worker pool q missed its heartbeats; its jobs will be recovered in 12 s unless it returns",
    ),
    (
        events.WorkerRecovered(pool_id="p", dead_pool_id="q", returned=[1, 2, 3], failed=[4], left=[]),
        "WARNING worker pool q is dead; returned 3 jobs to the queue, failed 1 job (jobs 1, 2, 3, 4)",
    ),
    (
        events.PoolEvicted(pool_id="p", jobs=[make_job()]),
        "WARNING this worker missed its heartbeats; dropped 1 job that other workers took over",
    ),
]


@pytest.mark.parametrize(("event", "line"), EVERY_LINE, ids=[type(event).__name__ for event, _ in EVERY_LINE])
def test_each_event_has_its_line(log: Log, event: events.Event, line: str) -> None:
    log.events.emit(event)
    assert log.lines == [line]


def test_a_missing_crontab_is_no_news(log: Log) -> None:
    log.plugin.no_crontab("/srv/crontab")
    assert log.lines == []
    loud = Log(logging.DEBUG, {})
    loud.plugin.no_crontab("/srv/crontab")
    assert loud.lines == ["DEBUG no crontab at /srv/crontab; there are no recurring jobs"]


def test_the_delay_before_a_retry_grows_to_six_hours_and_no_further() -> None:
    assert [round(back_off(attempts)) for attempts in (1, 2, 3)] == [3, 7, 20]
    assert back_off(10) == back_off(24)
    assert duration(back_off(10)) == "6 h 7 min"


def test_a_batch_with_many_failures_makes_one_line_of_bounded_length(log: Log) -> None:
    parts = [ValueError("x" * 900) for _ in range(500)]
    error = BatchFailureError(parts)
    log.events.emit(
        events.JobErrored(worker_id="w", job=make_job(), error=error, duration=0, batch_job_errors=parts)
    )
    assert "500 items of the batch: ValueError: xxx" in log.lines[0]
    assert len(log.lines[0]) < 3000
