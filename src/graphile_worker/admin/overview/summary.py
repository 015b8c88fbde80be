"""Incident summary: the last hours in Markdown, for a chat or a post-mortem.

Names and messages come from jobs. They are put where Markdown does not interpret them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo

from ...history.error_groups import ErrorGroup, list_error_groups
from ...values.job import Pause
from ...values.text import count
from ..answers import Marker
from ..database import ERRORS
from ..live.hub import Hub
from ..security.redact import Redactor
from ..tasks.series import RANGES, Timeline, read_markers, read_timeline, shown_to
from ..web.show import clock, duration, error_title, instant, zone_named
from .queries import Overview, read_overview

MOST_GROUPS = 15
LONGEST_LINE = 200


async def summary(hub: Hub, *, hours: int, zone: str = "", may_audit: bool = True) -> str:
    """What failed, since when, what was done by whom, and the state now."""
    page = await read_overview(hub)
    now, tables = datetime.now(UTC), hub.sampler.tables
    since = now - timedelta(hours=hours)
    wanted = RANGES["6h" if hours <= 6 else "48h"]
    async with hub.database.read() as connection:
        timeline = await read_timeline(
            connection, hub.database.schema, wanted, now, tables=tables, samples=hub.sampler.samples,
            is_whole=False,
        )  # fmt: skip
        groups: list[ErrorGroup] = []
        if tables >= ERRORS:
            groups = await list_error_groups(connection, hub.database.schema, since=since, limit=MOST_GROUPS)
        markers = await read_markers(connection, hub.database.schema, since, tables=tables)
    shown = shown_to(markers, may_audit=may_audit)
    return _written(page.overview, timeline, groups, shown, since, now, zone_named(zone), hub.redactor)


def _written(
    found: Overview,
    timeline: Timeline,
    groups: Sequence[ErrorGroup],
    markers: Sequence[Marker],
    since: datetime,
    now: datetime,
    zone: tzinfo,
    redactor: Redactor,
) -> str:
    parts = [
        f"# Job queue, {instant(since, zone)} to {instant(now, zone)}",
        "\n\n".join(_findings(found, zone)),
        "## State now\n\n" + "\n".join(_state(found, zone)),
        "## What failed\n\n" + "\n".join(_failures(groups, timeline, since, now, zone, redactor)),
        "## What happened\n\n" + "\n".join(_events(markers, now, zone)),
        "## Tasks, last hour\n\n" + "\n".join(_tasks(found)),
    ]
    return "\n\n".join(parts) + "\n"


def _findings(found: Overview, zone: tzinfo) -> list[str]:
    lines = []
    for finding in found.findings:
        began = f", began at {finding.since.astimezone(zone):%H:%M}" if finding.since else ""
        detail = f" {plain(finding.detail)}" if finding.detail else ""
        lines.append(f"**{plain(finding.title)}{began}.**{detail}")
    return lines


def _state(found: Overview, zone: tzinfo) -> list[str]:
    slots = f" of {count(found.slots, 'slot')}" if found.slots else ""
    lines = [
        f"- {found.ready} ready, {found.scheduled} scheduled, {found.running} running{slots}, "
        f"{found.failed} permanently failed",
        f"- the oldest ready job has waited for {duration(found.oldest_wait)}",
    ]
    if found.rates.completed is not None:
        lines.append(f"- {found.rates.completed:,.0f} jobs complete per minute")
    if found.rates.failed is not None:
        lines.append(f"- {found.rates.failed:,.0f} attempts fail per minute")
    if found.workers_alive is not None:
        lines.append(f"- {count(found.workers_alive, 'worker')} alive")
    lines += [f"- paused: {plain(each.what + _terms(each, zone))}" for each in found.pauses]
    return lines


def _terms(pause: Pause, zone: tzinfo) -> str:
    """How long and why."""
    until = "" if pause.until is None else f" until {instant(pause.until, zone)}"
    return until + (f" ({pause.reason})" if pause.reason else "")


def _failures(
    groups: Sequence[ErrorGroup],
    timeline: Timeline,
    since: datetime,
    now: datetime,
    zone: tzinfo,
    redactor: Redactor,
) -> list[str]:
    lines = []
    for name, series in timeline.tasks.items():
        failed = timeline.jobs(series.failed, since)
        if failed:
            done = timeline.jobs(series.completed, since)
            lines.append(f"- {code(name)}: {count(failed, 'failed attempt')}, {done:,} completed")
    for group in groups:
        version = f", first seen in version {plain(group.first_version)}" if group.first_version else ""
        lines.append(
            f"- {code(group.task_identifier)}: {code(error_title(group, redactor))} – "
            f"{count(group.errors, 'error')} since {clock(group.first_at, now, zone)}, last at "
            f"{clock(group.last_at, now, zone)}{version}"
        )
    return lines or ["Nothing that was recorded."]


def _events(markers: Sequence[Marker], now: datetime, zone: tzinfo) -> list[str]:
    return [f"- {clock(each.at, now, zone)}: {plain(each.text)}" for each in markers] or ["Nothing."]


def _tasks(found: Overview) -> list[str]:
    if not found.tasks:
        return ["No task has jobs."]
    rows = [
        f"| {code(task.name).replace('|', chr(0x2502))} | {task.waiting} | {task.completed_per_minute:,.1f} "
        f"| {'—' if task.failure_share is None else f'{task.failure_share:.0%}'} "
        f"| {duration(task.run_time.p95)} |"
        for task in found.tasks
    ]
    return ["| task | waiting | per minute | failing | p95 |", "|---|---:|---:|---:|---:|", *rows]


def code(text: str) -> str:
    """Text as code in one line. Without backticks it cannot end before its end."""
    line = " ".join(_printable(text).split())[:LONGEST_LINE]
    return f"`{line.replace('`', chr(0x2BC))}`" if line else "``"


def plain(text: str) -> str:
    """Text in one line, with what Markdown and HTML would interpret escaped."""
    line = " ".join(_printable(text).split())[: 2 * LONGEST_LINE]
    return "".join(f"\\{char}" if char in "\\`*[]<>#|!~" else char for char in line)


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)
