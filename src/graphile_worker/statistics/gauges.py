"""The gauges about the database that Prometheus reads: their names, in one place, and how they are written.

The dashboard and the worker export the same ones; `database_gauges.py` reads their values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

PREFIX = "graphile_worker"
READY_CAP = 10_001
"""`ready_jobs` says no more than this."""
HELP: Mapping[str, str] = {
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
        return HELP[self.name]

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
