"""Every metric, declared once: what it is called, what it means, who has it, and where Grafana shows it.

The text for Prometheus, the instruments of OpenTelemetry, the dashboard for Grafana and the reference of
metrics come from here. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

PREFIX = "graphile_worker"
MAX_TASKS = 200
"""Tasks with a label of their own."""
OTHER = "other"
"""The value of the label `task` or `tag` beyond `MAX_TASKS`."""
READY_CAP = 10_001
"""`ready_jobs` says no more than this."""
OUTCOMES = ("success", "error", "failed", "interrupted", "snoozed", "expired", "cancelled")
"""Values of the label `outcome`: `error` will be retried, `failed` will not."""

Kind = Literal["counter", "gauge", "histogram"]
Part = Literal["worker", "exporter", "dashboard", "opentelemetry"]
"""Who has a metric.

`worker`: every worker process. `exporter`: the one process that reads the database, which may be a worker.
`dashboard`: its own `/metrics`. `opentelemetry`: whatever has the plugin for that.
"""


class Metric(msgspec.Struct, frozen=True):
    """One metric. Its name is without the prefix; a counter's ends with `_total`."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    """At most one beside `task` or `tag`, which comes first."""
    unit: str = ""
    """`seconds`, `bytes` or `bool`; empty if it is a number of things."""
    parts: tuple[Part, ...] = ("worker",)
    buckets: tuple[float, ...] = ()
    from_zero: tuple[str, ...] = ()
    """Values of the last label that are there from the start: a rate misses the event that adds one."""
    merge: Literal["sum", "min", "max"] = "sum"
    """How the values of several worker processes become one."""

    @property
    def full_name(self) -> str:
        """As it is called unless another prefix is chosen."""
        return f"{PREFIX}_{self.name}"


# -- of a worker process -----------------------------------------------------------------------------------

JOBS = Metric(
    "jobs_total",
    "counter",
    "Attempts that ended, by outcome.",
    ("task", "outcome"),
    from_zero=("success", "error", "failed"),
)
DURATION = Metric(
    "job_duration_seconds",
    "histogram",
    "How long attempts ran.",
    ("task",),
    "seconds",
    buckets=(
        0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0,
    ),
)  # fmt: skip
WAIT = Metric(
    "job_wait_seconds",
    "histogram",
    "How long jobs waited from the time they could run until a worker took them; first attempts only.",
    ("task",),
    "seconds",
    buckets=(0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0),
)
RUNNING = Metric("jobs_running", "gauge", "Jobs that run now.", ("task",))
SLOTS = Metric("slots", "gauge", "Slots: how many jobs can run at the same time.")
LISTENING = Metric(
    "listening", "gauge", "Whether notifications about new jobs arrive.", unit="bool", merge="min"
)
INFO = Metric(
    "info",
    "gauge",
    "Version of graphile_worker, and the schema.",
    ("version", "schema"),
    parts=("worker", "exporter", "dashboard"),
    merge="max",
)
TAGGED = Metric(
    "tagged_jobs_total", "counter", "Attempts that ended, of jobs with this tag.", ("tag", "outcome")
)
FETCHED = Metric("jobs_fetched_total", "counter", "Jobs locked by fetches.")
RETURNED = Metric("jobs_returned_total", "counter", "Prefetched jobs returned to the queue, not run.")
EVICTED = Metric("jobs_evicted_total", "counter", "Jobs that other workers took over from this one.")
BLOCKED = Metric(
    "loop_blocked_seconds_total",
    "counter",
    "How long the event loop was blocked, from one second on.",
    unit="seconds",
)
DATABASE_ERRORS = Metric(
    "database_errors_total",
    "counter",
    "Failed statements: fetch, listen or reset_locked.",
    ("action",),
    from_zero=("fetch", "listen", "reset_locked"),
)
RECOVERED = Metric(
    "jobs_recovered_total",
    "counter",
    "Orphaned jobs of dead workers, by outcome.",
    ("outcome",),
    from_zero=("returned", "failed", "left", "cancelled"),
)
ADDED = Metric(
    "jobs_added_total", "counter", "Jobs that this process added, without recurring ones.", ("task", "result")
)
CRON_JOBS = Metric("cron_jobs_total", "counter", "Recurring jobs that this worker added.", ("task",))

# -- of a database -----------------------------------------------------------------------------------------


def _of_database(name: str, help: str, labels: tuple[str, ...] = (), unit: str = "") -> Metric:
    return Metric(name, "gauge", help, labels, unit, parts=("exporter", "dashboard"))


OLDEST_READY = _of_database(
    "oldest_ready_job_age_seconds",
    "How long the oldest ready job has waited; 0 if none is ready.",
    unit="seconds",
)
READY = _of_database("ready_jobs", f"Ready jobs, at most {READY_CAP}.")
READY_IS_CAPPED = _of_database("ready_jobs_is_capped", "Whether there are more ready jobs.", unit="bool")
WORKERS = _of_database("workers", "Python worker pools.", ("state",))
JOBS_IN_TABLE = _of_database("jobs", "Jobs by task and state.", ("task", "state"))
JOBS_ARE_ESTIMATED = _of_database("jobs_is_estimate", "Whether the jobs are estimated.", unit="bool")
QUEUE_JOBS = _of_database(
    "queue_jobs", "Waiting jobs of a named queue, ready or scheduled; an estimate above 1000.", ("queue",)
)
TABLE_BYTES = _of_database("jobs_table_bytes", "Size of the jobs table with its indexes.", unit="bytes")
DEAD_ROWS = _of_database("jobs_dead_rows", "Dead rows of the jobs table.")
EXPORTER_UP = _of_database("exporter_up", "Whether the database answers the exporter.", unit="bool")
LAST_SUCCESS = _of_database(
    "exporter_last_success_timestamp_seconds", "When the database last answered.", unit="seconds"
)

# -- of OpenTelemetry, by its messaging conventions --------------------------------------------------------

_ATTRIBUTES = ("messaging.system", "messaging.operation.name", "messaging.destination.name", "error.type")
_ADVISED_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)


def _instrument(name: str, kind: Kind, help: str, unit: str, buckets: tuple[float, ...] = ()) -> Metric:
    return Metric(name, kind, help, _ATTRIBUTES, unit, ("opentelemetry",), buckets)


SENT_MESSAGES = _instrument(
    "messaging.client.sent.messages", "counter", "Jobs that were to be added.", "{message}"
)
CONSUMED_MESSAGES = _instrument(
    "messaging.client.consumed.messages", "counter", "Jobs that were run.", "{message}"
)
SEND_DURATION = _instrument(
    "messaging.client.operation.duration", "histogram", "How long it took to add jobs.", "s", _ADVISED_BUCKETS
)
PROCESS_DURATION = _instrument(
    "messaging.process.duration", "histogram", "How long jobs ran.", "s", _ADVISED_BUCKETS
)

_DECLARED = tuple(value for value in tuple(globals().values()) if isinstance(value, Metric))
ALL_METRICS: Sequence[Metric] = tuple(each for each in _DECLARED if "opentelemetry" not in each.parts)
"""For Prometheus, in the order in which they are declared."""
WORKER_METRICS: Sequence[Metric] = tuple(each for each in ALL_METRICS if "worker" in each.parts)
DATABASE_METRICS: Sequence[Metric] = tuple(each for each in ALL_METRICS if "worker" not in each.parts)
DASHBOARD_METRICS: Sequence[Metric] = tuple(each for each in ALL_METRICS if "dashboard" in each.parts)
INSTRUMENTS: Sequence[Metric] = tuple(each for each in _DECLARED if "opentelemetry" in each.parts)
"""For OpenTelemetry."""

# -- what the dashboard for Grafana shows ------------------------------------------------------------------


class Query(msgspec.Struct, frozen=True):
    """A line of a panel: a metric of all processes, one value for each value of the labels `by`.

    Counters are shown as a rate per second, histograms as a percentile, gauges as they are.
    """

    metric: Metric
    by: tuple[str, ...] = ()
    legend: str | None = None
    """The labels, unless it says otherwise."""
    reduce: Literal["sum", "min", "max"] = "sum"
    only: str = ""
    """One more condition, in PromQL."""
    increase: str = ""
    """How much a counter grew in this time, instead of a rate."""
    share_of: Query | None = None
    """Divided by this."""
    top: int = 0
    """The highest ones only."""
    of_all_tasks: bool = False
    """Also of tasks that are not chosen."""


class Panel(msgspec.Struct, frozen=True):
    """A panel; its unit follows from its queries."""

    title: str
    description: str
    queries: tuple[Query, ...]
    kind: Literal["stat", "timeseries"] = "timeseries"
    thresholds: tuple[tuple[str, float | None], ...] = ()
    """Colours, each from a value on."""
    max: float | None = None


class PanelRow(msgspec.Struct, frozen=True):
    """A part of the dashboard: lines of panels."""

    title: str
    lines: tuple[tuple[Panel, ...], ...]


def _stat(title: str, description: str, query: Query, *thresholds: tuple[str, float | None]) -> Panel:
    return Panel(title, description, (query,), "stat", thresholds)


def _chart(title: str, description: str, *queries: Query, max: float | None = None) -> Panel:
    return Panel(title, description, queries, max=max)


_GREEN, _RED = ("green", None), ("red", None)
_RATE_INTERVAL = "$__rate_interval"

DASHBOARD: Sequence[PanelRow] = (
    PanelRow("Overview", ((
        _stat("Oldest ready job", "How long the oldest ready job has waited.",
              Query(OLDEST_READY, reduce="max"), _GREEN, ("yellow", 60), ("red", 300)),
        _stat("Ready jobs", "Counted up to 10,001.", Query(READY, reduce="max")),
        _stat("Jobs per second", "Successful attempts.", Query(JOBS, only='outcome="success"')),
        _stat("Permanently failed, last hour", "Jobs that used all attempts, or were given up.",
              Query(JOBS, only='outcome="failed"', increase="1h"), _GREEN, ("red", 1)),
        _stat("Busy slots", "Share of the slots that run a job.",
              Query(RUNNING, of_all_tasks=True, share_of=Query(SLOTS)), _GREEN, ("yellow", 0.9)),
        _stat("Workers alive", "Python worker pools.",
              Query(WORKERS, reduce="max", only='state="alive"'), _RED, ("green", 1)),
    ),)),
    PanelRow("Tasks", (
        (
            _chart("Attempts per second, by outcome", "Errors are retried; failed jobs are not.",
                   Query(JOBS, ("outcome",))),
            _chart("Attempts per second, by task", "The fifteen busiest tasks.",
                   Query(JOBS, ("task",), top=15)),
        ),
        (
            _chart("Share of errors, by task", "Attempts that failed, of all.",
                   Query(JOBS, ("task",), only='outcome=~"error|failed"', share_of=Query(JOBS, ("task",))),
                   max=1),
            _chart("Run time, 95th percentile", "Of all attempts that ended.", Query(DURATION, ("task",))),
            _chart("Wait time, 95th percentile",
                   "From the time when a job could run until a worker took it; first attempts.",
                   Query(WAIT, ("task",))),
        ),
        (
            _chart("Running jobs, by task", "Live.", Query(RUNNING, ("task",))),
            _chart("Attempts per second, by tag", "The fifteen busiest tags.",
                   Query(TAGGED, ("tag",), top=15)),
            _chart("Jobs added per second", "By processes with the plugin.",
                   Query(ADDED, ("task", "result")), Query(CRON_JOBS, ("task",), "{{task}} recurring")),
        ),
    )),
    PanelRow("Workers", (
        (
            _chart("Slots and running jobs", "By worker process or pod.",
                   Query(SLOTS, ("instance",), "{{instance}} slots"),
                   Query(RUNNING, ("instance",), "{{instance}} running", of_all_tasks=True)),
            _chart("Listening",
                   "Whether notifications about new jobs arrive. Without them, jobs are found by polling.",
                   Query(LISTENING, ("instance",), reduce="min")),
            _chart("Database errors per second", "Failed fetches, and lost connections for LISTEN.",
                   Query(DATABASE_ERRORS, ("action",))),
        ),
        (
            _chart("Jobs fetched and returned per second", "Returned jobs were prefetched, and not run.",
                   Query(FETCHED, legend="fetched"), Query(RETURNED, legend="returned")),
            _chart("Recovered and evicted jobs", "Jobs of dead workers.",
                   Query(RECOVERED, ("outcome",), "recovered: {{outcome}}", increase=_RATE_INTERVAL),
                   Query(EVICTED, legend="evicted", increase=_RATE_INTERVAL)),
            _chart("Blocked event loop",
                   "Share of the time in which a task, or other code, blocked the event loop.",
                   Query(BLOCKED, ("instance",))),
        ),
    )),
    PanelRow("Database", (
        (
            _chart("Jobs by state", "An estimate for large tables.", Query(JOBS_IN_TABLE, ("state",))),
            _chart("Ready jobs by task", "The fifteen longest backlogs.",
                   Query(JOBS_IN_TABLE, ("task",), only='state="ready"', top=15)),
            _chart("Waiting jobs by queue", "Named queues, if they are few or asked for.",
                   Query(QUEUE_JOBS, ("queue",), top=15)),
        ),
        (
            _chart("Age of the oldest ready job", "The number to alert on.",
                   Query(OLDEST_READY, legend="oldest", reduce="max")),
            _chart("Size of the jobs table", "With its indexes.",
                   Query(TABLE_BYTES, legend="bytes", reduce="max")),
            _chart("Dead rows", "Many of them mean that VACUUM does not keep up.",
                   Query(DEAD_ROWS, legend="dead rows", reduce="max")),
        ),
    )),
)  # fmt: skip
