"""Percentiles of run and wait times over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from ...db.connection import Connection
from ...histogram import percentile
from ...queries.figures import FigureGroup, Figures, read_figures
from ...schema_name import SchemaName
from ..models.series import Points
from .series import Timeline

P95 = 0.95


async def read_percentiles(
    connection: Connection, schema: SchemaName, of: Timeline, now: datetime, task: str | None
) -> dict[str, dict[str, Points]]:
    """`run_p95` and `wait_p95` in each step, by task; the empty name is for all together."""
    if not of.is_recorded:
        return {}
    unit: FigureGroup = "minute" if of.range.is_fine else "day" if of.range.is_by_day else "hour"
    rows = await read_figures(
        connection, schema, since=of.start, until=None, now=now, task_identifier=task, by=[unit, "task"]
    )
    steps: defaultdict[tuple[str, int], list[Figures]] = defaultdict(list)
    for row in rows:
        if row.start is None:
            continue
        step = int((row.start - of.start).total_seconds() // of.range.step)
        if 0 <= step < of.range.count:
            steps[row.task_identifier or "", step].append(row)
            steps["", step].append(row)
    found: dict[str, dict[str, Points]] = {}
    for (name, step), figures in steps.items():
        points = found.setdefault(
            name, {"run_p95": [None] * of.range.count, "wait_p95": [None] * of.range.count}
        )
        points["run_p95"][step] = percentile(
            _added([each.run_times for each in figures]), P95, max(each.longest for each in figures)
        )
        points["wait_p95"][step] = percentile(_added([each.wait_times for each in figures]), P95)
    return found


def _added(histograms: Sequence[Sequence[int]]) -> list[int]:
    longest = max((len(each) for each in histograms), default=0)
    return [sum(each[place] for each in histograms if place < len(each)) for place in range(longest)]
