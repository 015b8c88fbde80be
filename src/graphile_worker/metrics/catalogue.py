"""Every metric: its name, type, labels and meaning.

Every metric: its name, type, labels and meaning, for workers, the exporter and the dashboard. Pure.

The gauges about the database that Prometheus reads: their names, in one place, and how they are written.

The dashboard and the worker export the same ones; `database_gauges.py` reads their values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

PREFIX = "graphile_worker"
READY_CAP = 10_001
"""`ready_jobs` says no more than this."""
GAUGES: Mapping[str, str] = {
    "oldest_ready_job_age_seconds": "How long the oldest ready job has waited; 0 if none is ready.",
    "ready_jobs": f"Ready jobs, at most {READY_CAP}.",
    "ready_jobs_is_capped": "Whether there are more ready jobs.",
    "workers": "Python worker pools.",
    "jobs": "Jobs by task and state.",
    "jobs_is_estimate": "Whether the jobs are estimated.",
    "queue_jobs": "Waiting jobs of a named queue, ready or scheduled; an estimate above 1000.",
    "jobs_table_bytes": "Size of the jobs table with its indexes.",
    "jobs_dead_rows": "Dead rows of the jobs table.",
    "info": "Version of graphile_worker, and the schema.",
    "exporter_up": "Whether the database answers the exporter.",
    "exporter_last_success_timestamp_seconds": "When the database last answered.",
}
"""All gauges about the database, without the prefix."""

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Gauge:
    """One metric and its values, each with labels."""

    name: str
    """One of `HELP`."""
    values: Sequence[tuple[Labels, float]]

    @property
    def help(self) -> str:
        return GAUGES[self.name]

    def lines(self) -> Iterable[str]:
        """The text format of Prometheus."""
        yield f"# HELP {PREFIX}_{self.name} {self.help}"
        yield f"# TYPE {PREFIX}_{self.name} gauge"
        for labels, value in self.values:
            yield f"{PREFIX}_{self.name}{_labels(labels)} {value:.10g}"


def gauge(name: str, value: float, labels: Labels | None = None) -> Gauge:
    """A gauge with one value."""
    return Gauge(name, [(labels or {}, value)])


def labelled(gauges: Iterable[Gauge], labels: Labels) -> list[Gauge]:
    """The same gauges with more labels, which come first."""
    return [Gauge(each.name, [({**labels, **own}, value) for own, value in each.values]) for each in gauges]


def written(gauges: Iterable[Gauge]) -> str:
    """Gauges as text, those of one name together."""
    merged: dict[str, Gauge] = {}
    for each in gauges:
        known = merged.get(each.name)
        merged[each.name] = Gauge(each.name, [*known.values, *each.values]) if known else each
    return "\n".join(line for each in merged.values() for line in each.lines()) + "\n"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


MAX_TASKS = 200
"""Tasks with a label of their own."""
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
