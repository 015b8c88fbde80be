"""Gauges about the database for Prometheus, from the sampler and never from a scan."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...db.errors import explained
from ...sql import load
from ...version import __version__
from ..hub import Hub
from ..models.overview import Sample
from .tasks import count_by_task

logger = logging.getLogger("graphile_worker.admin")

CAP = 10_001
"""`ready_jobs` says no more than this, as the exporter's bounded count does."""
MAX_TASKS = 200
"""Tasks with a label of their own."""
TABLE_EVERY = 60.0
"""Seconds between two counts of jobs by task."""
MAX_AGE = 15.0
"""Seconds. Scrapes that are closer together share a sample."""
WITHDRAWN_AFTER = 45.0
"""Seconds after which values of a database that does not answer are withdrawn."""
PREFIX = "graphile_worker"


@dataclass(frozen=True, slots=True)
class Gauge:
    """One metric and its values, each with labels."""

    name: str
    help: str
    values: Sequence[tuple[dict[str, str], float]]

    def lines(self) -> Iterable[str]:
        yield f"# HELP {PREFIX}_{self.name} {self.help}"
        yield f"# TYPE {PREFIX}_{self.name} gauge"
        for labels, value in self.values:
            yield f"{PREFIX}_{self.name}{_labels(labels)} {value:.10g}"


async def read_metrics(hubs: Sequence[Hub]) -> str:
    """The text that Prometheus reads; with several databases, a label tells them apart."""
    many = len(hubs) > 1
    parts = [await _of(hub, {"database": hub.database.name} if many else {}) for hub in hubs]
    return written([gauge for part in parts for gauge in part])


def written(gauges: Sequence[Gauge]) -> str:
    """Metrics as text, those of one name together."""
    merged: dict[str, Gauge] = {}
    for gauge in gauges:
        known = merged.get(gauge.name)
        values = [*known.values, *gauge.values] if known else gauge.values
        merged[gauge.name] = Gauge(gauge.name, gauge.help, values)
    return "\n".join(line for gauge in merged.values() for line in gauge.lines()) + "\n"


async def _of(hub: Hub, labels: dict[str, str]) -> list[Gauge]:
    found: list[Gauge] = []
    last, is_up = 0.0, False
    try:
        sample = await hub.current(max_age=MAX_AGE)
        last, is_up = sample.at.timestamp(), hub.down_since is None
        if is_up or time.time() - last < WITHDRAWN_AFTER:
            found += _of_sample(sample, labels)
            found += await hub.shared("metrics", lambda: _of_table(hub, labels), max_age=TABLE_EVERY)
    except Exception as error:
        is_up = False
        logger.debug("no metrics: %s", explained(error))
    more = {**labels, "version": __version__, "schema": hub.database.schema.name}
    when = "When the database last answered."
    return [
        *found,
        _gauge("info", "Version of graphile_worker, and the schema.", more, 1),
        _gauge("exporter_up", "Whether the database answers the dashboard.", labels, float(is_up)),
        _gauge("exporter_last_success_timestamp_seconds", when, labels, last),
    ]


def _of_sample(sample: Sample, labels: dict[str, str]) -> list[Gauge]:
    waited = "How long the oldest ready job has waited; 0 if none is ready."
    is_capped = sample.ready.value >= CAP
    found = [
        _gauge("oldest_ready_job_age_seconds", waited, labels, sample.oldest_wait),
        _gauge("ready_jobs", f"Ready jobs, at most {CAP}.", labels, min(sample.ready.value, CAP)),
        _gauge("ready_jobs_is_capped", "Whether there are more ready jobs.", labels, float(is_capped)),
    ]
    if sample.workers is not None:
        states = (("alive", sample.workers), ("lost", sample.unreachable))
        values = [({**labels, "state": state}, float(count)) for state, count in states]
        found.append(Gauge("workers", "Python worker pools.", values))
    return found


async def _of_table(hub: Hub, labels: dict[str, str]) -> list[Gauge]:
    """What changes slowly: jobs by task and state, from a bounded part of the table, and its size."""
    schema = hub.database.schema
    async with hub.database.read() as connection:
        counts, is_estimate = await count_by_task(connection, schema)
        (row,) = await connection.fetch(load("admin/table_state", schema), f"{schema.quoted}._private_jobs")
    values = [
        ({**labels, "task": task, "state": state}, float(count))
        for task, states in _bounded(counts).items()
        for state, count in states.items()
    ]
    return [
        Gauge("jobs", "Jobs by task and state.", values),
        _gauge("jobs_is_estimate", "Whether the jobs are estimated.", labels, float(is_estimate)),
        _gauge("jobs_table_bytes", "Size of the jobs table with its indexes.", labels, row["bytes"]),
        _gauge("jobs_dead_rows", "Dead rows of the jobs table.", labels, row["dead_rows"]),
    ]


def _bounded(counts: dict[str, dict[str, int]]) -> dict[str, Counter[str]]:
    """The tasks with the most jobs; the rest is `other`."""
    found: dict[str, Counter[str]] = {}
    for task in sorted(counts, key=lambda task: -sum(counts[task].values())):
        name = task if len(found) < MAX_TASKS else "other"
        found.setdefault(name, Counter()).update(counts[task])
    return found


def _gauge(name: str, help: str, labels: dict[str, str], value: float) -> Gauge:
    return Gauge(name, help, [(labels, value)])


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
