"""Values over time: what workers did, from the statistics, and what was waiting, from the samples.

Minutes are kept for two days, hours and days for 90. Ranges up to six hours are read from the minutes, those
up to a week from the hours, longer ones from the days. Samples cover all runtimes and the last two days;
where no worker takes them, the hub's own ones of the last hour stand in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal

from ...database.connections.connection import Connection, Row
from ...database.sql import load
from ...database.statements.control import list_deploys
from ...history.statistics import BUCKETS, percentile
from ...values.job import Pause
from ...values.schema_name import SchemaName
from ..answers import Marker, Points, RangeName
from ..database import DAYS, STATISTICS
from ..live.sampler import Sample
from ..web.show import numbered

MINUTE, HOUR, DAY = 60, 3600, 86400
SAMPLES_KEPT = 2 * DAY
WRITTEN_WITHIN = 20
"""Seconds until workers have written what they counted in a minute."""


@dataclass(frozen=True, slots=True)
class Range:
    """A period before now, in steps."""

    name: RangeName
    label: str
    step: int
    """Seconds."""
    count: int
    """Steps."""

    @property
    def seconds(self) -> int:
        return self.step * self.count

    @property
    def is_fine(self) -> bool:
        """Whether it is read from the minutes."""
        return self.step < HOUR

    @property
    def is_by_day(self) -> bool:
        """Whether it is read from the days."""
        return self.step >= DAY

    @property
    def has_samples(self) -> bool:
        return self.seconds <= SAMPLES_KEPT

    def start(self, now: datetime, *, is_whole: bool = True) -> datetime:
        """The first step. The last one is over, and written; unless `is_whole`, it may be going on."""
        moment = now.timestamp() - WRITTEN_WITHIN
        last = moment // self.step - 1 if is_whole else now.timestamp() // self.step
        return datetime.fromtimestamp((last - self.count + 1) * self.step, UTC)


RANGES: dict[RangeName, Range] = {
    each.name: each
    for each in (
        Range("15m", "15 min", MINUTE, 15),
        Range("1h", "1 h", MINUTE, 60),
        Range("6h", "6 h", 5 * MINUTE, 72),
        Range("24h", "24 h", HOUR, 24),
        Range("48h", "48 h", HOUR, 48),
        Range("7d", "7 d", HOUR, 168),
        Range("30d", "30 d", DAY, 30),
        Range("90d", "90 d", DAY, 90),
    )
}


@dataclass(slots=True)
class TaskSeries:
    """What became of one task's jobs in each step, per minute."""

    completed: list[float]
    failed: list[float]
    busy: list[float]
    """Slots that were busy on average, by attempts that ended then: a long one counts only when it ends."""

    @property
    def total(self) -> float:
        return sum(self.completed) + sum(self.failed)


@dataclass(slots=True)
class BacklogSeries:
    """The jobs table in each step; None where there is no sample. Rates are per minute."""

    ready: Points
    oldest_wait: Points
    added: Points
    deleted: Points

    @property
    def is_empty(self) -> bool:
        return all(value is None for value in self.ready)


@dataclass(slots=True)
class Timeline:
    """Everything about one range."""

    range: Range
    start: datetime
    now: datetime
    tasks: dict[str, TaskSeries] = field(default_factory=dict)
    backlog: BacklogSeries | None = None
    is_recorded: bool = True
    """Whether there are statistics."""

    @property
    def end(self) -> datetime:
        return self.start + timedelta(seconds=self.range.seconds)

    @property
    def completed(self) -> list[float]:
        return self._sum([each.completed for each in self.tasks.values()])

    @property
    def failed(self) -> list[float]:
        return self._sum([each.failed for each in self.tasks.values()])

    @property
    def busy(self) -> list[float]:
        return self._sum([each.busy for each in self.tasks.values()])

    @property
    def others(self) -> Points | None:
        """Jobs per minute that other runtimes completed, or that were removed; None if there were hardly any.

        Samples and statistics are not taken at the same moment, so a job may be in one step of the one and
        in the step beside it of the other: only what is missing in all of them together counts.
        """
        if self.backlog is None or self.backlog.is_empty:
            return None
        pairs = list(zip(self.backlog.deleted, self.completed, strict=True))
        deleted, own = sum(all or 0.0 for all, _ in pairs), sum(self.completed)
        if deleted - own <= max(deleted * 0.15, 5.0):
            return None
        return [None if all is None else max(all - own, 0.0) for all, own in pairs]

    def jobs(self, rates: Sequence[float], since: datetime) -> int:
        """How many jobs these rates are, from the step of a moment on."""
        first = max(int((since - self.start).total_seconds() // self.range.step), 0)
        return round(sum(rates[step] * self.seconds(step) / 60 for step in range(first, self.range.count)))

    def seconds(self, step: int) -> float:
        """How much of a step has passed: the last one may be going on."""
        begin = self.start + timedelta(seconds=step * self.range.step)
        passed = (self.now - begin).total_seconds()
        return min(max(passed, float(MINUTE)), float(self.range.step))

    def _sum(self, parts: Sequence[Sequence[float]]) -> list[float]:
        return added_up(parts) or [0.0] * self.range.count


def added_up(parts: Sequence[Sequence[float]]) -> list[float]:
    """The sum of each step; empty without parts."""
    return [sum(each) for each in zip(*parts, strict=True)]


async def read_timeline(
    connection: Connection,
    schema: SchemaName,
    wanted: Range,
    now: datetime,
    *,
    tables: frozenset[str],
    task_identifier: str | None = None,
    samples: Sequence[Sample] = (),
    is_whole: bool = True,
) -> Timeline:
    """Values of a range that ends now; `samples` stand in where no worker takes any.

    The last step is over, so that a chart does not fall at its end; unless `is_whole`, for sums up to now.
    """
    start = wanted.start(now, is_whole=is_whole)
    found = Timeline(wanted, start, now, is_recorded=tables >= STATISTICS)
    if found.is_recorded:
        rows = await read_steps(connection, schema, found, tables, task_identifier)
        found.tasks = _by_task(rows, found)
    if wanted.has_samples and task_identifier is None:
        if found.is_recorded:
            found.backlog = await _read_backlog(connection, schema, found)
        if found.backlog is None or found.backlog.is_empty:
            found.backlog = _backlog_in_memory(found, samples)
    return found


async def read_steps(
    connection: Connection,
    schema: SchemaName,
    of: Timeline,
    tables: frozenset[str],
    task_identifier: str | None,
    *,
    variant: Literal["", "@times"] = "",
) -> Sequence[Row]:
    """Statistics of each step and task, from the minutes, the hours or the days."""
    source = "minutes" if of.range.is_fine else "days" if of.range.is_by_day and DAYS in tables else "hours"
    statement = load(f"admin/{source}_by_step{variant}", schema)
    rows = await connection.fetch(statement, of.start, of.end, float(of.range.step), task_identifier)
    return [row for row in rows if 0 <= row["step"] < of.range.count]


def _by_task(rows: Sequence[Row], of: Timeline) -> dict[str, TaskSeries]:
    """The busiest task first."""
    found: dict[str, TaskSeries] = {}
    for row in rows:
        step = row["step"]
        series = found.setdefault(row["task"], nothing(of.range.count))
        seconds = of.seconds(step)
        series.completed[step] = row["completed"] * 60 / seconds
        series.failed[step] = row["failed"] * 60 / seconds
        series.busy[step] = row["run_seconds"] / seconds
    return dict(sorted(found.items(), key=lambda item: (-item[1].total, item[0])))


async def _read_backlog(connection: Connection, schema: SchemaName, of: Timeline) -> BacklogSeries:
    statement = load("admin/backlog_series", schema)
    rows = await connection.fetch(statement, of.start, of.end, float(of.range.step))
    found = _no_backlog(of.range.count)
    for row in rows:
        step = row["step"]
        if 0 <= step < of.range.count:
            found.ready[step], found.oldest_wait[step] = row["ready"], row["oldest_wait"]
            if row["seconds"]:
                found.added[step] = (row["added"] or 0) * 60 / row["seconds"]
                found.deleted[step] = (row["deleted"] or 0) * 60 / row["seconds"]
    return found


def _backlog_in_memory(of: Timeline, samples: Sequence[Sample]) -> BacklogSeries:
    """The same from samples of the hub."""
    found = _no_backlog(of.range.count)
    for sample in samples:
        step = int((sample.at - of.start).total_seconds() // of.range.step)
        if 0 <= step < of.range.count:
            found.ready[step] = sample.ready.value
            found.oldest_wait[step] = max(found.oldest_wait[step] or 0.0, sample.oldest_wait)
            found.added[step], found.deleted[step] = sample.added_per_minute, sample.deleted_per_minute
    return found


def nothing(count: int) -> TaskSeries:
    """A task of which nothing is known."""
    return TaskSeries([0.0] * count, [0.0] * count, [0.0] * count)


def _no_backlog(count: int) -> BacklogSeries:
    return BacklogSeries([None] * count, [None] * count, [None] * count, [None] * count)


# -- percentiles --------------------------------------------------------------------------------------------

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
    rows = await read_steps(connection, schema, of, tables, task_identifier, variant="@times")
    for step, task, *row in rows:
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


# -- markers ------------------------------------------------------------------------------------------------

AUDIT = "_private_py_audit"
DEPLOYS = "_private_py_deploys"
MOST_ACTIONS = 40
SAME = timedelta(seconds=5)
SILENT = frozenset({"sign_in_refused", "sign_out", "reveal_payload"})
"""Actions that change nothing, so that they explain nothing."""


async def read_markers(
    connection: Connection,
    schema: SchemaName,
    since: datetime,
    *,
    tables: frozenset[str],
    pauses: Sequence[Pause] = (),
) -> list[Marker]:
    """Everything since then, in order; `shown_to` leaves out what a person may not see."""
    found = await read_deploys(connection, schema, since, tables=tables)
    recorded: list[Marker] = []
    if AUDIT in tables:
        recorded = await _actions(connection, schema, since)
        found += recorded
    found += _pauses(pauses, since, recorded)
    started: datetime = await connection.fetchval(load("admin/server_start", schema))
    if started >= since:
        found.append(Marker(started, "restart", "the server was restarted"))
    shown = [Marker(each.at, each.kind, numbered(each.text)) for each in found]
    return sorted(shown, key=lambda marker: marker.at)


def shown_to(markers: Iterable[Marker], *, may_audit: bool) -> list[Marker]:
    """Without what people did, which is in the audit, for those who may not read that."""
    return [each for each in markers if may_audit or each.kind != "action"]


async def read_deploys(
    connection: Connection, schema: SchemaName, since: datetime, *, tables: frozenset[str]
) -> list[Marker]:
    """Deploys of the application: the first start of a worker with another version."""
    if DEPLOYS not in tables:
        return []
    found = await list_deploys(connection, schema, since)
    return [Marker(each.started_at, "deploy", f"{each.version} was deployed") for each in reversed(found)]


async def _actions(connection: Connection, schema: SchemaName, since: datetime) -> list[Marker]:
    rows = await connection.fetch(load("admin/actions_since", schema), since, MOST_ACTIONS)
    return [
        Marker(row["at"], "pause" if row["action"].startswith("pause") else "action", _words(row))
        for row in rows
        if row["action"] not in SILENT
    ]


def _words(row: Row) -> str:
    action = row["action"].replace("_", " ")
    target = f" {row['target']}" if row["target"] else ""
    return f"{action}{target} by {row['who']}"


def _pauses(pauses: Sequence[Pause], since: datetime, recorded: Sequence[Marker]) -> list[Marker]:
    """Pauses in the period that are not in the audit, because they were made in code."""
    return [
        Marker(pause.paused_at, "pause", f"{pause.what} paused")
        for pause in pauses
        if pause.paused_at is not None
        and pause.paused_at >= since
        and not any(each.kind == "pause" and abs(each.at - pause.paused_at) < SAME for each in recorded)
    ]
