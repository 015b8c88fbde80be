"""The reference of metrics: name, type and labels of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graphile_worker.metrics.catalogue import (
    DATABASE_METRICS,
    INSTRUMENTS,
    OUTCOMES,
    WORKER_METRICS,
    Metric,
)

from .members import cell, text


def page() -> str:
    lines = [
        text("metrics.md"),
        "## Of a worker process",
        "",
        *_table((metric.full_name, metric) for metric in WORKER_METRICS),
        "",
        f"The label `outcome` of `jobs_total` is {', '.join(f'`{outcome}`' for outcome in OUTCOMES)}.",
        "",
        *_buckets(WORKER_METRICS),
        "## Of a database",
        "",
        *_table((metric.full_name, metric) for metric in DATABASE_METRICS),
        "",
        "## Of OpenTelemetry",
        "",
        "[Its plugin](../observability/opentelemetry.md#metrics) has these, by its messaging conventions:",
        "",
        *_table((metric.name, metric) for metric in INSTRUMENTS),
    ]
    return "\n".join(lines) + "\n"


def _table(metrics: Iterable[tuple[str, Metric]]) -> list[str]:
    rows = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for name, metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        rows.append(f"| `{name}` | {metric.kind} | {labels} | {cell(metric.help)} |")
    return rows


def _buckets(metrics: Sequence[Metric]) -> list[str]:
    return [
        line
        for metric in metrics
        if metric.buckets
        for line in (f"Buckets of `{metric.name}`: {_numbers(metric.buckets)} {metric.unit}.", "")
    ]


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)
