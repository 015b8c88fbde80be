"""The metrics of workers and clients: equal to what happened, bounded, and read by the official parser."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from graphile_worker import JobSpec, Snooze, make_worker_utils
from graphile_worker.contrib.prometheus import DatabaseMetrics, PrometheusPlugin
from graphile_worker.errors import ConfigError, JobRefusedError
from graphile_worker.hooks import Hooks
from graphile_worker.hooks.events import JobErrored, JobFailed, JobSnoozed, JobSucceeded, PoolJobsFetched
from graphile_worker.metrics.catalogue import DATABASE_METRICS, WORKER_METRICS
from graphile_worker.metrics.database_metrics import own_reader
from graphile_worker.testing.results import EventRecorder
from graphile_worker.values.options import WorkerOptions
from service.probes import values_in
from support.working import Gate, Jobs, Workers, until

SUCCESSES = "jobs_total[outcome=success"


def scrape(registry: CollectorRegistry) -> dict[str, float]:
    return values_in(generate_latest(registry).decode())


async def test_counters_equal_the_events_of_a_run(
    workers: Workers, database_url: str, recorder: EventRecorder
) -> None:
    registry = CollectorRegistry()
    plugin = PrometheusPlugin(registry)
    gate = Gate()

    async def good() -> None: ...

    async def bad(payload: Any) -> None:
        raise ValueError("on purpose")

    async def later() -> Snooze:
        return Snooze(3600)

    hooks = Hooks(plugins=[plugin])

    @hooks.before_add
    def refuse(spec: JobSpec) -> None:
        if spec.task_identifier == "refused":
            raise JobRefusedError("not now")

    async with make_worker_utils(connection_string=database_url, hooks=hooks) as utils:
        await utils.add_jobs([JobSpec("good", {"n": n}) for n in range(500)])
        await utils.add_jobs([JobSpec("bad", n, max_attempts=1 + n % 2) for n in range(20)])
        await utils.add_job("later")
        await utils.add_job("gate")
        with pytest.raises(JobRefusedError):
            await utils.add_job("refused")
    other = PrometheusPlugin(registry)  # as `--http-port` adds one beside that of the program
    runner = await workers.start(
        {"good": good, "bad": bad, "later": later, "gate": gate},
        plugins=[plugin, other],
        concurrency=10,
        events=recorder.events,
    )
    await gate.until_inside(1)

    def all_ended() -> bool:
        return [recorder.count(kind) for kind in (JobSucceeded, JobErrored, JobSnoozed)] == [500, 20, 1]

    await until(all_ended)
    live = scrape(registry)
    assert live["jobs_running[task=gate]"] == 1
    assert live["slots"] == 10
    gate.open()
    await until(lambda: recorder.names.count("job:success") == 501)
    await workers.stop(runner)
    found = scrape(registry)

    failed = Counter(event.job.task_identifier for event in recorder.of(JobFailed))
    retried = sum(event.will_retry for event in recorder.of(JobErrored))
    assert found["jobs_total[outcome=success,task=good]"] == 500
    assert found["jobs_total[outcome=success,task=gate]"] == 1
    assert found["jobs_total[outcome=failed,task=bad]"] == failed["bad"] == 10
    assert found["jobs_total[outcome=error,task=bad]"] == retried == 10
    assert found["jobs_total[outcome=failed,task=good]"] == 0
    assert found["jobs_total[outcome=snoozed,task=later]"] == 1
    assert found["jobs_fetched_total"] == sum(event.count for event in recorder.of(PoolJobsFetched))
    durations = sum(
        event.duration for event in recorder.of(JobSucceeded) if event.job.task_identifier == "good"
    )
    assert found["job_duration_seconds_count[task=good]"] == 500
    assert found["job_duration_seconds_bucket[le=+Inf,task=good]"] == 500
    assert found["job_duration_seconds_sum[task=good]"] == pytest.approx(durations)
    assert found["job_wait_seconds_count[task=good]"] == 500
    assert found["job_duration_seconds_count[task=bad]"] == 20
    assert found["jobs_added_total[result=added,task=good]"] == 500
    assert found["jobs_added_total[result=refused,task=refused]"] == 1
    assert not any(name.startswith(("jobs_running", "slots", "listening")) for name in found)
    known = {metric.name for metric in WORKER_METRICS}
    parts = ("_bucket", "_sum", "_count")
    for name in found:
        plain = name.partition("[")[0]
        assert plain in known or any(plain.removesuffix(part) in known for part in parts), name


async def test_tasks_beyond_two_hundred_share_a_label(
    jobs: Jobs, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    registry = CollectorRegistry()

    async def run() -> None: ...

    tasks = {f"task_{number}": run for number in range(500)}
    for number in (0, 199, 200, 499):
        await jobs.add(f"task_{number}")
    await workers.start(tasks, plugins=[PrometheusPlugin(registry)])
    await jobs.until_gone()

    def all_are_counted() -> bool:
        return sum(value for name, value in scrape(registry).items() if name.startswith(SUCCESSES)) == 4

    await until(all_are_counted)
    found = scrape(registry)
    assert found["jobs_total[outcome=success,task=other]"] == 2
    assert found["jobs_total[outcome=success,task=task_199]"] == 1
    assert len({name for name in found if name.startswith(SUCCESSES)}) == 201
    said = [record for record in caplog.records if record.name == "graphile_worker.metrics"]
    assert [record.levelno for record in said] == [logging.WARNING]
    assert "there are more than 200 tasks" in said[0].getMessage()


def test_ten_thousand_names_of_added_jobs_have_two_hundred_labels() -> None:
    registry = CollectorRegistry()
    hooks = Hooks(plugins=[PrometheusPlugin(registry)])
    (watcher,) = hooks.table.add_watchers
    _, state = watcher.before([JobSpec(f"task_{number}") for number in range(10_000)])
    watcher.after(state, None, None)
    found = {name: value for name, value in scrape(registry).items() if name.startswith("jobs_added_total")}
    assert len(found) == 201
    assert sum(found.values()) == 10_000
    assert found["jobs_added_total[result=added,task=other]"] == 9_800


async def test_gauges_about_the_database(jobs: Jobs, database_url: str) -> None:
    registry = CollectorRegistry()
    for _ in range(3):
        await jobs.add("mail", queue="slow")
    async with make_worker_utils(connection_string=database_url) as utils:
        async with DatabaseMetrics(utils, every=0.05, queues=["slow"], registry=registry):
            await until(lambda: "exporter_up" in scrape(registry) and scrape(registry)["exporter_up"] == 1)
            found = scrape(registry)
            assert (
                found["ready_jobs"]
                == found["jobs[state=ready,task=mail]"]
                == found["queue_jobs[queue=slow]"]
                == 3
            )
            assert found["oldest_ready_job_age_seconds"] > 0
            names = {name.partition("[")[0] for name in found}
            assert names == {metric.name for metric in DATABASE_METRICS}
            await utils.pool.close()  # the database is away
            await until(lambda: "ready_jobs" not in scrape(registry))
            assert scrape(registry)["exporter_up"] == 0
            assert scrape(registry)["exporter_last_success_timestamp_seconds"] > 0
        assert scrape(registry) == {}


async def test_one_of_several_workers_exports_the_gauges(database_url: str) -> None:
    options = WorkerOptions(connection_string=database_url)
    first, second = (own_reader(options, is_exclusive=True, every=0.05) for _ in range(2))
    first.start()
    try:
        await until(lambda: first.is_up)
        second.start()
        try:
            started = first._last_success
            await until(lambda: first._last_success > started)
            assert second.gauges() == []
            await first.stop()
            await until(lambda: bool(second.gauges()))
        finally:
            await second.stop()
    finally:
        await first.stop()


def test_wrong_arguments_are_refused() -> None:
    registry = CollectorRegistry()
    with pytest.raises(ConfigError, match="duration_buckets: expected upper bounds in seconds"):
        PrometheusPlugin(registry, duration_buckets=(2, 1))
    with pytest.raises(ConfigError, match="max_tasks: must be at least 1"):
        PrometheusPlugin(registry, max_tasks=0)
    assert asyncio.iscoroutinefunction(PrometheusPlugin.start)
