"""The keys of each JSON line, which machines rely on: a change here is a change of the interface."""

from __future__ import annotations

import io
import json
import logging
from typing import Any

import pytest

from graphile_worker.hooks import Events, Hooks, events
from graphile_worker.logging.configure import JsonFormatter
from graphile_worker.logging.log_plugin import LogPlugin
from observability.test_log_plugin import EVERY_LINE, make_job

ALWAYS = ["ts", "level", "logger", "label", "msg", "pid"]
JOB = ["event", "pool_id", "worker_id", "task", "job_id", "attempt", "max_attempts"]
POOL = ["event", "pool_id"]
ERROR = ["error", "error_type"]
RECOVERED = ["dead_pool_id", "returned", "failed", "left", "cancelled"]

KEYS: dict[type[events.Event], list[str]] = {
    events.JobSucceeded: [*JOB, "duration_ms"],
    events.JobErrored: [*JOB, *ERROR, "duration_ms", "retry_in_s", "traceback"],
    events.JobFailed: [*JOB, *ERROR, "duration_ms", "traceback"],
    events.JobInterrupted: [*JOB, *ERROR],
    events.PoolListenSuccess: POOL,
    events.PoolListenError: [*POOL, *ERROR],
    events.PoolFatalError: [*POOL, *ERROR, "action"],
    events.WorkerFatalError: ["event", "worker_id", *ERROR, "traceback"],
    events.GracefulShutdown: ["event", "signal"],
    events.ForcefulShutdown: ["event", "signal"],
    events.PoolGracefulShutdown: POOL,
    events.PoolGracefulShutdownComplete: POOL,
    events.PoolGracefulShutdownWorkerError: [
        "event", "pool_id", "task", "job_id", "attempt", "max_attempts", *ERROR,
    ],
    events.PoolGracefulShutdownError: [*POOL, *ERROR],
    events.PoolForcefulShutdown: POOL,
    events.PoolForcefulShutdownComplete: POOL,
    events.PoolForcefulShutdownError: [*POOL, *ERROR],
    events.ResetLockedFailure: [*POOL, *ERROR],
    events.CronStarted: ["event"],
    events.CronScheduled: ["event", "identifiers", "timestamp"],
    events.CronBackfill: ["event", "identifiers", "timestamp"],
    events.CronPrematureTimer: ["event"],
    events.CronOverdueTimer: ["event"],
    events.WorkerLost: [*POOL, "lost_pool_id"],
    events.WorkerRecovered: [*POOL, *RECOVERED],
    events.PoolEvicted: [*POOL, "jobs"],
}  # fmt: skip
JOBS: list[events.Event] = [
    events.JobSucceeded(worker_id="w", job=make_job(), duration=0.1),
    events.JobErrored(worker_id="w", job=make_job(), error=ValueError("no"), duration=0.1, traceback="tb\nb"),
    events.JobFailed(worker_id="w", job=make_job(), error=ValueError("no"), duration=0.1, traceback="tb\nb"),
    events.JobInterrupted(worker_id="w", job=make_job(), error=TimeoutError("late")),
]
SAMPLES = [*JOBS, *(event for event, _ in EVERY_LINE)]


class JsonLog:
    """A plugin whose lines are read as a machine reads them."""

    def __init__(self) -> None:
        self._stream = io.StringIO()
        logger = logging.Logger("graphile_worker", logging.INFO)
        logger.manager = logging.Manager(logger)  # type: ignore[arg-type]
        handler = logging.StreamHandler(self._stream)
        handler.setFormatter(JsonFormatter())
        logger.addHandler(handler)
        self.plugin = LogPlugin(logger, environ={})
        self.events = Events()
        Hooks(events=self.events, plugins=[self.plugin])

    def line(self) -> dict[str, Any]:
        """The only line."""
        (text,) = self._stream.getvalue().splitlines()
        line: dict[str, Any] = json.loads(text)
        return line


@pytest.mark.parametrize("event", SAMPLES, ids=[type(event).__name__ for event in SAMPLES])
def test_the_keys_of_a_line_are_these_in_this_order(event: events.Event) -> None:
    log = JsonLog()
    log.events.emit(event)
    line = log.line()
    assert list(line) == [*ALWAYS, *KEYS[type(event)]]
    assert line["event"] == event.name


def test_every_kind_of_line_has_its_keys_written_down() -> None:
    assert {type(event) for event in SAMPLES} == set(KEYS)


def test_the_line_when_ready_has_everything_by_name() -> None:
    log = JsonLog()
    log.plugin.ready(
        version="1.2", pool_id="p", tasks=["b", "a"], cron_items=1, concurrency=4, database="db", schema="s"
    )
    line = log.line()
    assert list(line) == [
        *ALWAYS, "event", "pool_id", "tasks", "cron_items", "concurrency", "database", "schema", "version",
    ]  # fmt: skip
    assert (line["event"], line["tasks"], line["cron_items"], line["concurrency"]) == (
        "ready",
        ["a", "b"],
        1,
        4,
    )
    assert (line["database"], line["schema"], line["version"]) == ("db", "s", "1.2")


def test_the_line_when_ready_has_the_slots_of_lanes() -> None:
    log = JsonLog()
    log.plugin.ready(
        version="1", pool_id="p", tasks=["a"], cron_items=0, concurrency=4, database="d", schema="s",
        lanes={"video": 2, "limit openai": 4},
    )  # fmt: skip
    line = log.line()
    assert line["lanes"] == {"video": 2, "limit openai": 4}
    assert "4 jobs at a time (lanes: video 2, limit openai 4)" in line["msg"]
