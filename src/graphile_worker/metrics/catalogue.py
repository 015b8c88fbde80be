"""Every metric: its name, type, labels and meaning, for workers, the exporter and the dashboard. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from ..statistics.database_gauges import MAX_TASKS as MAX_TASKS
from ..statistics.gauges import HELP as GAUGES
from ..statistics.gauges import PREFIX

OTHER = "other"
"""The value of the label `task` beyond `MAX_TASKS`."""
DURATION_BUCKETS = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0,
)  # fmt: skip
"""Seconds that a task runs: from milliseconds to an hour."""
WAIT_BUCKETS = (0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0)
"""Seconds that a job waits: from milliseconds to four hours."""
OUTCOMES = ("success", "error", "failed", "interrupted", "snoozed", "expired", "cancelled")
"""Values of the label `outcome`: `error` will be retried, `failed` will not."""

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
CRON_JOBS = Metric("cron_jobs_total", "counter", "Recurring jobs that this worker added.", ("task",))
ADDED = Metric(
    "jobs_added_total", "counter", "Jobs that this process added, without recurring ones.", ("task", "result")
)
BLOCKED = Metric(
    "loop_blocked_seconds_total", "counter", "How long the event loop was blocked, from one second on."
)
INFO = Metric("info", "gauge", GAUGES["info"], ("version", "schema"), merge="max")
WORKER_METRICS: Sequence[Metric] = (
    JOBS, DURATION, WAIT, RUNNING, SLOTS, LISTENING, FETCHED, RETURNED, DATABASE_ERRORS, RECOVERED, EVICTED,
    CRON_JOBS, ADDED, BLOCKED, INFO,
)  # fmt: skip
"""Of a worker process."""

_LABELS = {"jobs": ("task", "state"), "queue_jobs": ("queue",), "workers": ("state",)}
DATABASE_METRICS: Sequence[Metric] = tuple(
    Metric(name, "gauge", help, _LABELS.get(name, ())) for name, help in GAUGES.items() if name != INFO.name
)
"""Of a database; one process exports them."""

ALL_METRICS: Sequence[Metric] = (*WORKER_METRICS, *DATABASE_METRICS)
