"""Every metric: its name, type, labels and meaning, for workers, the exporter and the dashboard. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

PREFIX = "graphile_worker"
MAX_TASKS = 200
"""Tasks with a label of their own; the others share `OTHER`."""
OTHER = "other"
DURATION_BUCKETS = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0,
)  # fmt: skip
"""Seconds that a task runs: from milliseconds to an hour."""
WAIT_BUCKETS = (0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0)
"""Seconds that a job waits: from milliseconds to four hours."""
OUTCOMES = ("success", "error", "failed", "interrupted", "snoozed", "expired", "cancelled")
"""Values of the label `outcome`: `error` will be retried, `failed` will not."""
READY_CAP = 10_001
"""`ready_jobs` says no more than this."""

Kind = Literal["counter", "gauge", "histogram"]


class Metric(msgspec.Struct, frozen=True):
    """One metric. Its name is without the prefix; a counter's ends with `_total`."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    merge: Literal["sum", "min", "max"] = "sum"
    """How the values of several worker processes become one."""

    @property
    def full_name(self) -> str:
        """As it is called unless another prefix is chosen."""
        return f"{PREFIX}_{self.name}"


JOBS = Metric("jobs_total", "counter", "Attempts that ended, by outcome.", ("task", "outcome"))
DURATION = Metric("job_duration_seconds", "histogram", "How long attempts ran.", ("task",))
WAIT = Metric(
    "job_wait_seconds",
    "histogram",
    "How long jobs waited from the time they could run until a worker took them; first attempts only.",
    ("task",),
)
RUNNING = Metric("jobs_running", "gauge", "Jobs that run now.", ("task",))
SLOTS = Metric("slots", "gauge", "Slots: how many jobs can run at the same time.")
LISTENING = Metric("listening", "gauge", "Whether notifications about new jobs arrive.", merge="min")
FETCHED = Metric("jobs_fetched_total", "counter", "Jobs locked by fetches.")
RETURNED = Metric("jobs_returned_total", "counter", "Prefetched jobs returned to the queue, not run.")
DATABASE_ERRORS = Metric(
    "database_errors_total", "counter", "Failed statements: fetch, listen or reset_locked.", ("action",)
)
RECOVERED = Metric(
    "jobs_recovered_total", "counter", "Orphaned jobs of dead workers, by what became of them.", ("outcome",)
)
EVICTED = Metric("jobs_evicted_total", "counter", "Jobs that other workers took over from this one.")
CRON_JOBS = Metric(
    "cron_jobs_total", "counter", "Recurring jobs that were scheduled, by this worker or another.", ("task",)
)
ADDED = Metric("jobs_added_total", "counter", "Jobs added by this process.", ("task", "result"))
BLOCKED = Metric(
    "loop_blocked_seconds_total", "counter", "How long the event loop was blocked, from one second on."
)
INFO = Metric(
    "info",
    "gauge",
    "Version of graphile-worker, and schema; always 1.",
    ("version", "schema"),
    merge="max",
)
WORKER_METRICS: Sequence[Metric] = (
    JOBS, DURATION, WAIT, RUNNING, SLOTS, LISTENING, FETCHED, RETURNED, DATABASE_ERRORS, RECOVERED, EVICTED,
    CRON_JOBS, ADDED, BLOCKED, INFO,
)  # fmt: skip
"""Of a worker process."""

OLDEST = Metric(
    "oldest_ready_job_age_seconds", "gauge", "How long the oldest ready job has waited; 0 if none is ready."
)
READY = Metric("ready_jobs", "gauge", f"Ready jobs, at most {READY_CAP}.")
READY_IS_CAPPED = Metric("ready_jobs_is_capped", "gauge", "Whether there are more ready jobs than that.")
JOBS_BY_STATE = Metric("jobs", "gauge", "Jobs in the table, by task and state.", ("task", "state"))
JOBS_IS_ESTIMATE = Metric("jobs_is_estimate", "gauge", "Whether the number of jobs is an estimate.")
QUEUE_JOBS = Metric("queue_jobs", "gauge", "Jobs of a named queue, for the queues asked for.", ("queue",))
WORKERS = Metric("workers", "gauge", "Python worker pools by state: alive or lost.", ("state",))
TABLE_BYTES = Metric("jobs_table_bytes", "gauge", "Size of the jobs table with its indexes.")
DEAD_ROWS = Metric("jobs_dead_rows", "gauge", "Dead rows of the jobs table.")
EXPORTER_UP = Metric("exporter_up", "gauge", "Whether the database answers the exporter.")
LAST_SUCCESS = Metric(
    "exporter_last_success_timestamp_seconds", "gauge", "When the gauges of the database were last read."
)
DATABASE_METRICS: Sequence[Metric] = (
    OLDEST, READY, READY_IS_CAPPED, JOBS_BY_STATE, JOBS_IS_ESTIMATE, QUEUE_JOBS, WORKERS, TABLE_BYTES,
    DEAD_ROWS, EXPORTER_UP, LAST_SUCCESS,
)  # fmt: skip
"""Of a database; one process exports them."""

ALL_METRICS: Sequence[Metric] = (*WORKER_METRICS, *DATABASE_METRICS)
