"""Percentiles of run and wait times over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...database.connections.connection import Connection
from ...history.statistics import BUCKETS, percentile
from ...values.schema_name import SchemaName
from ..models.series import Points
from .series import Timeline, read_steps

P95 = 0.95


@dataclass(slots=True)
class _Percentiles:
    """The histograms of one step, added up."""

    longest: float = 0.0
    run_times: list[int] = field(default_factory=lambda: [0] * BUCKETS)
    wait_times: list[int] = field(default_factory=lambda: [0] * BUCKETS)

    def add(self, longest: float, run_times: Sequence[int], wait_times: Sequence[int]) -> None:
        self.longest = max(self.longest, longest)
        for place, count in enumerate(run_times):
            self.run_times[place] += count
        for place, count in enumerate(wait_times):
            self.wait_times[place] += count


async def read_percentiles(
    connection: Connection,
    schema: SchemaName,
    of: Timeline,
    *,
    tables: frozenset[str],
    task_identifier: str | None,
) -> dict[str, dict[str, Points]]:
    """`run_p95` and `wait_p95` in each step, by task; the empty name is for all together."""
    if not of.is_recorded:
        return {}
    steps: defaultdict[tuple[str, int], _Percentiles] = defaultdict(_Percentiles)
    for step, task, *row in await read_steps(connection, schema, "times", of, tables, task_identifier):
        steps[task, step].add(*row)
        steps["", step].add(*row)
    found: dict[str, dict[str, Points]] = {}
    for (name, step), times in steps.items():
        points = found.setdefault(
            name, {"run_p95": [None] * of.range.count, "wait_p95": [None] * of.range.count}
        )
        points["run_p95"][step] = percentile(times.run_times, P95, times.longest)
        points["wait_p95"][step] = percentile(times.wait_times, P95)
    return found
