"""`graphile-worker stats`: cheap even with millions of jobs.

`stats --since` reports what workers did in a period: as a table, a bar chart of block characters and a few
sentences, or as JSON.
"""

from __future__ import annotations

import shutil
import sys
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ...database.connections.errors import sqlstate_of
from ...diagnostics.json_shapes import backlog_as_json, statistics_as_json, task_statistics_as_json
from ...history.statistics import LONGEST_IN_MINUTES, STEPS, StatisticsGroup
from ...values.job import instant
from ...values.text import count
from ..support.command import Output, client_command
from ..support.output import ESTIMATE, cell, print_table
from ..support.parameters import EXACT_OPTION, SINCE
from .pause import paused_notes

if TYPE_CHECKING:
    from ...client import WorkerUtils
    from ...database.statements.inspection import JobCounts, Statistics
    from ...history.statistics import BacklogSample, StatisticsList, TaskStatistics

HELD = "By their last reports, workers have {}. Short jobs may run unlocked; they are shown as ready."


def _check(exact: bool, since: datetime | timedelta | None, task: str | None) -> None:
    if since is None and task is not None:
        raise click.UsageError("--task needs --since")
    if since is not None and exact:
        raise click.UsageError("--exact counts the jobs of now; it cannot be used with --since")


@client_command("stats", check=_check)
@EXACT_OPTION
@click.option(
    "--since", type=SINCE, metavar="PERIOD", help="Show what workers did since then: 15m, 1h, 7d, or a time."
)
@click.option("--task", metavar="TASK", help="With --since: only this task.")
async def stats_command(
    utils: WorkerUtils, exact: bool, since: datetime | timedelta | None, task: str | None
) -> Output:
    """Count jobs by state and task, or show what workers did.

    In a large table the numbers are estimates, and are labelled as such. With --since: completed and failed
    jobs, run times and wait times by task, as workers of this package recorded them.

    \b
    graphile-worker stats
    graphile-worker stats --since 1h
    graphile-worker stats --since 7d --task send_email --json
    """
    if since is not None:
        report = await read_report(utils, since, task)
        return Output(report.as_json, report.print)
    found = await utils.statistics.jobs(exact=exact)
    held = await _reported_jobs(utils)
    notes = [HELD.format(count(held, "job"))] if held > found.jobs.running else []
    return Output(lambda: statistics_as_json(found), lambda: _print_statistics(found), notes=notes)


async def _reported_jobs(utils: WorkerUtils) -> int:
    """How many jobs workers have by their last reports; 0 if these cannot be read."""
    from ...database.connections.sqlstates import UNAVAILABLE_TABLE

    try:
        return sum(worker.jobs_held or 0 for worker in await utils.list_workers())
    except Exception as error:
        if sqlstate_of(error) not in UNAVAILABLE_TABLE:
            raise
        return 0


def _print_statistics(found: Statistics) -> None:
    rows = [_row(task, counts) for task, counts in sorted(found.tasks.items())]
    print_table(
        ("task", "ready", "scheduled", "running", "failed", "total"),
        [*rows, _row("(all)", found.jobs)] if len(rows) != 1 else rows,
    )
    click.echo()
    if found.queues:
        click.echo(f"{count(found.queues, 'named queue')}, {found.locked_queues:,} locked.")
    for note in paused_notes(found.pauses):
        click.echo(note)
    if found.oldest_ready_at is not None:
        click.echo(f"The oldest ready job has been waiting since {cell(found.oldest_ready_at)}.")
    elif not found.jobs.total:
        click.echo("No jobs.")
    if found.is_estimate:
        click.echo(ESTIMATE)


def _row(name: str, counts: JobCounts) -> list[Any]:
    return [name, counts.ready, counts.scheduled, counts.running, counts.failed, counts.total]


BLOCKS = " ▁▂▃▄▅▆▇█"
PLAIN_BLOCKS = "  ..::###"
"""For terminals that cannot show the others."""
HEIGHT = 5
WIDTH = 62  # enough for an hour by minutes


def bar_chart(
    values: Sequence[float], *, begin: str, end: str, height: int = HEIGHT, blocks: str = BLOCKS
) -> list[str]:
    """The lines of a chart, a column for each value, with the largest one at the side; never empty."""
    top = max(values, default=0)
    label = f"{top:,.0f}" if top >= 10 or top == int(top) else f"{top:.2g}"
    margin = max(len(label), 1)
    lines = []
    for row in range(height - 1, -1, -1):
        name = label if row == height - 1 else "0" if row == 0 else ""
        bars = "".join(_part(value, top, row, height, blocks) for value in values)
        lines.append(f"{name:>{margin}} |{bars}".rstrip())
    gap = max(len(values) - len(begin) - len(end), 1)
    return [*lines, f"{'':>{margin}}  {begin}{'':{gap}}{end}"]


def _part(value: float, top: float, row: int, height: int, blocks: str) -> str:
    """What a bar shows in one line; a value that is not zero is visible."""
    if not top:
        return blocks[0]
    eighths = 8 * height * value / top - 8 * row
    if row == 0 and value > 0:
        eighths = max(eighths, 1)
    return blocks[max(0, min(8, round(eighths)))]


SHARES = (0.5, 0.95, 0.99)
TABLES_ARE_MISSING = (
    "There are no statistics: the tables for them are missing. The owner of the schema can create them with: "
    "graphile-worker migrate"
)
NO_STATISTICS = (
    "No statistics{of_task} since {since}: no worker of this package has finished such a job, or only in the "
    "last seconds. Workers of other runtimes record none."
)

COLUMNS = (
    "task", "completed", "failed", "permanently failed", "jobs/s",
    "run p50", "run p95", "run p99", "wait p50", "wait p95", "wait p99",
)  # fmt: skip
COUNTS = 5  # columns before the times
WIDE = 120  # columns of a terminal that has room for all
UNSAMPLED = timedelta(minutes=5)  # at the beginning of a period
LONGEST_IN_HOURS = timedelta(days=7, hours=1)  # as in the dashboard, whose range of a week has hours
FEW = 10  # jobs that mean nothing, because the server's counters lag behind by some seconds


class StatisticsReport(msgspec.Struct, frozen=True):
    """Everything that was read for one period."""

    task: str | None
    tasks: StatisticsList
    total: TaskStatistics | None
    series: StatisticsList
    step: timedelta
    """The time between two rows of `series`."""
    samples: list[BacklogSample]
    """Of the whole queue; none for a single task."""

    def as_json(self) -> dict[str, Any]:
        return {
            "since": self.tasks.since,
            "until": self.tasks.until,
            "is_recorded": self.tasks.is_recorded,
            "tasks": {row.task_identifier: task_statistics_as_json(row, self._seconds) for row in self.tasks},
            "total": None if self.total is None else task_statistics_as_json(self.total, self._seconds),
            "step": self.step.total_seconds(),
            "series": [
                {
                    "start": row.start,
                    "completed": row.completed,
                    "failed": row.failed,
                    "permanently_failed": row.permanently_failed,
                }
                for row in self.series
            ],
            "backlog": self._backlog_by_step(),
        }

    def print(self) -> None:
        """Print the table, the chart and what is known about the backlog."""
        since, until = cell(self.tasks.since), cell(self.tasks.until)
        if not self.tasks.is_recorded:
            click.echo(TABLES_ARE_MISSING)
            return
        if self.total is None:
            of_task = f" of {cell(self.task)}" if self.task is not None else ""
            click.echo(NO_STATISTICS.format(of_task=of_task, since=since))
        else:
            click.echo(f"Workers of this package, {since} to {until}\n")
            rows = [_period_row(row.task_identifier or "", row, self._seconds) for row in self.tasks]
            if len(rows) > 1:
                rows.append(_period_row("(all)", self.total, self._seconds))
            _print_rows(rows)
            self._print_chart()
        for line in self._backlog_lines():
            click.echo(line)

    def _backlog_by_step(self) -> list[dict[str, Any]]:
        """The samples of each minute, hour or day as one: sums of what happened, the largest backlog."""
        seconds = self.step.total_seconds()
        steps: defaultdict[float, list[BacklogSample]] = defaultdict(list)
        for sample in self.samples:
            steps[sample.at.timestamp() // seconds * seconds].append(sample)
        return [backlog_as_json(instant(start), samples) for start, samples in steps.items()]

    @property
    def _seconds(self) -> float:
        return max((self.tasks.until - self.tasks.since).total_seconds(), 1.0)

    def _print_chart(self) -> None:
        values, seconds = _columns(self.series, self.step)
        click.echo(f"Completed per {_per(seconds)}")
        begin, end = self.series.since, self.series.until
        shape = "%H:%MZ"
        if end - begin > timedelta(days=1):
            shape = "%Y-%m-%d" if self.step >= timedelta(days=1) else "%m-%d %H:%M"
        lines = bar_chart(values, begin=begin.strftime(shape), end=end.strftime(shape), blocks=_blocks())
        for line in lines:
            click.echo(line)
        click.echo()

    def _backlog_lines(self) -> list[str]:
        """Sentences about all runtimes, which only the samples know."""
        if not self.samples:
            return []
        last = self.samples[-1]
        most = max(self.samples, key=lambda sample: sample.ready)
        slowest = max(self.samples, key=lambda sample: sample.oldest_wait)
        lines = [
            f"Ready jobs: {_about(last, last.ready)} at {cell(last.at)}, "
            f"at most {_about(most, most.ready)} at {cell(most.at)}."
            if most.ready
            else "Ready jobs: none in any sample."
        ]
        if slowest.oldest_wait:
            lines.append(f"Longest wait of a ready job: {Time(slowest.oldest_wait)}, at {cell(slowest.at)}.")
        if others := self._by_others():
            lines.append(f"About {count(others, 'job')} were completed by other runtimes, or removed.")
        return lines

    def _by_others(self) -> int | None:
        """Jobs that were deleted and that no worker of this package completed; None if that is unknown."""
        begin = self.samples[0].at
        if begin - self.tasks.since > UNSAMPLED:  # samples are kept for a shorter time than statistics
            return None
        completed = 0 if self.total is None else self.total.completed
        others = sum(sample.deleted or 0 for sample in self.samples) - completed
        return others if others > max(FEW, completed // 100) else 0


async def read_report(utils: WorkerUtils, since: datetime | timedelta, task: str | None) -> StatisticsReport:
    """Read what the command shows."""
    tasks = await utils.statistics.tasks(since=since, task_identifier=task, by="task")
    group = _group(tasks.until - tasks.since)
    series = await utils.statistics.tasks(since=tasks.since, task_identifier=task, by=group)
    if series.since < tasks.since:  # the whole first day, in the table, too
        tasks = await utils.statistics.tasks(since=series.since, task_identifier=task, by="task")
    total = await utils.statistics.tasks(since=tasks.since, task_identifier=task)
    return StatisticsReport(
        task,
        tasks,
        total[0] if total else None,
        series,
        timedelta(seconds=STEPS[group]),
        [] if task is not None else await utils.statistics.samples(since=tasks.since),
    )


def _group(period: timedelta) -> StatisticsGroup:
    """The steps of the chart: as fine as they are kept, and not many more than it has columns."""
    if period <= LONGEST_IN_MINUTES + timedelta(minutes=1):
        return "minute"
    return "hour" if period <= LONGEST_IN_HOURS else "day"


def _period_row(name: str, statistics: TaskStatistics, seconds: float) -> list[Any]:
    runs = [statistics.run_percentile(share) for share in SHARES]
    waits = [statistics.wait_percentile(share) for share in SHARES]
    return [
        name,
        statistics.completed,
        statistics.failed,
        statistics.permanently_failed,
        ReportedRate(statistics.completed / seconds),
        *(None if time is None else Time(time) for time in (*runs, *waits)),
    ]


def _print_rows(rows: list[list[Any]]) -> None:
    """One table, or two if the terminal is narrow."""
    parts = [range(len(COLUMNS))]
    if sys.stdout.isatty() and shutil.get_terminal_size().columns < WIDE:
        parts = [range(COUNTS), range(COUNTS, len(COLUMNS))]
    for part in parts:
        columns = part if 0 in part else (0, *part)
        print_table(
            [COLUMNS[index] for index in columns], [[row[index] for index in columns] for row in rows]
        )
        click.echo()


def _columns(series: StatisticsList, step: timedelta) -> tuple[list[float], float]:
    """The values of the chart's columns, and the seconds that each of them covers."""
    seconds = step.total_seconds()
    begin = series.since.timestamp()
    count = int((series.until.timestamp() - begin) // seconds) + 1
    merged = -(-count // WIDTH)
    values = [0.0] * -(-count // merged)
    for row in series:
        if row.start is not None:
            column = int((row.start.timestamp() - begin) / seconds) // merged
            if 0 <= column < len(values):
                values[column] += row.completed
    return values, seconds * merged


def _per(seconds: float) -> str:
    """What a column of the chart covers."""
    for name, length in reversed(STEPS.items()):
        if seconds >= length and seconds % length == 0:
            number = round(seconds / length)
            return name if number == 1 else f"{number} {name}s"
    return str(Time(seconds))


def _about(sample: BacklogSample, number: int) -> str:
    return f"about {number:,}" if sample.is_estimate and number > 1000 else f"{number:,}"


def _blocks() -> str:
    try:
        BLOCKS.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return PLAIN_BLOCKS
    return BLOCKS


class Time(float):
    """Seconds that are printed with a fitting unit: `85us`, `1.2ms`, `3.4s`, `2m05s`."""

    def __str__(self) -> str:
        if self < 0.0009995:
            return f"{self * 1e6:.0f}us"
        if self < 0.9995:
            return f"{self * 1e3:.3g}ms"
        if self < 59.95:
            return f"{self:.3g}s"
        minutes, seconds = divmod(round(self), 60)
        if minutes < 60:
            return f"{minutes}m{seconds:02}s" if seconds else f"{minutes}m"
        hours, minutes = divmod(minutes, 60)
        return f"{hours}h{minutes:02}m" if minutes else f"{hours}h"


class ReportedRate(float):
    """A number per second, with three digits."""

    def __str__(self) -> str:
        return f"{self:,.0f}" if self >= 100 else f"{self:.3g}"
