"""The reference of metrics: name, type and labels of each."""

from __future__ import annotations

from collections.abc import Sequence

from graphile_worker.metrics.catalogue import (
    DATABASE_METRICS,
    DURATION_BUCKETS,
    OUTCOMES,
    WAIT_BUCKETS,
    WORKER_METRICS,
    Metric,
)

from .members import cell, text


def page() -> str:
    lines = [
        text("metrics.md"),
        "## Of a worker process",
        "",
        *_table(WORKER_METRICS),
        "",
        f"The label `outcome` of `jobs_total` is {', '.join(f'`{outcome}`' for outcome in OUTCOMES)}.",
        "",
        f"Buckets of `job_duration_seconds`: {_numbers(DURATION_BUCKETS)} seconds.",
        "",
        f"Buckets of `job_wait_seconds`: {_numbers(WAIT_BUCKETS)} seconds.",
        "",
        "## Of a database",
        "",
        *_table(DATABASE_METRICS),
    ]
    return "\n".join(lines) + "\n"


def _table(metrics: Sequence[Metric]) -> list[str]:
    rows = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        rows.append(f"| `{metric.full_name}` | {metric.kind} | {labels} | {cell(metric.help)} |")
    return rows


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)
