"""Findings: what is wrong now, the worst first, each in one sentence. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import ceil
from typing import Literal

import msgspec

from ...diagnostics.explanation.values import title, words
from ...history.error_groups import ErrorGroup
from ...values.job import Pause
from ...values.text import count
from ..answers import Marker
from ..live.sampler import Sample
from ..tasks.queries import RunningLine, TaskRow
from ..tasks.series import TaskSeries, Timeline
from ..web.show import duration

Level = Literal["ok", "idle", "warn", "bad"]
"""`idle`: nothing is wrong, and nothing runs yet."""


class OverviewFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong, or that all is well."""

    level: Level
    title: str
    since: datetime | None = None
    """When it began; follows the title."""
    detail: str = ""
    link: str = ""
    """Text of a link to more."""
    path: str = ""
    query: dict[str, str] = {}


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Per minute, over the last minutes; None if unknown."""

    added: float | None = None
    completed: float | None = None
    failed: float | None = None
    """Attempts."""
    completed_before: float | None = None
    """An hour ago."""
    failed_before: float | None = None


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """Where the backlog is going, if nothing changes."""

    growth: float
    """Ready jobs per minute; negative if the backlog shrinks."""
    empty_in: float | None = None
    """Seconds until nothing waits."""
    missing_slots: int | None = None
    """How many more slots would keep up; None if slots are free, or run times unknown."""
    text: str = ""


RECENT = 10
"""Minutes in which failures count as now."""
RATED = 6
"""Minutes whose jobs are in a rate: five, and the one that is going on."""
OTHERS = 0.15
"""Share of the completed jobs from which on those that no Python worker counted are of other runtimes."""
FEW_FAILURES = 5
FAILING = 0.1
"""Share of failed attempts from which on a task counts as failing."""
FAILING_BADLY = 0.25
JUST_BEGUN = 3
"""Minutes in which errors count as new."""
QUIET = 3
"""Minutes without a failure that end a series of failures."""
LONG_WAIT = 60.0
"""Seconds. A shorter wait is nothing unusual."""
FAR_ABOVE = 10
"""Times the usual wait."""
VERY_LONG_WAIT = 600.0
BEFORE = timedelta(minutes=30)
"""How long before failures began a deploy may have caused them."""
STEADY_FOR = 30
"""Minutes with jobs before a stop, of which nine in ten had some."""
STOPPED = 5
"""Minutes without a completed job after which steady work counts as stopped."""
OVERDUE = timedelta(hours=1)
"""A recurring job that is later is a problem, not a warning."""
RESTARTED_WITHIN = timedelta(minutes=2)
"""Workers that ended so lately may be replaced in a moment."""
LONG_UNUSED = timedelta(days=1)
"""Recurring jobs of other runtimes may be rare; without any for so long, nobody runs them."""
ORDER: dict[Level, int] = {"bad": 0, "warn": 1, "idle": 2, "ok": 3}


@dataclass(slots=True)
class OverviewFacts:
    """What findings are made of."""

    sample: Sample
    hour: Timeline
    rates: Rates
    usual_wait: float | None = None
    forecast: Forecast | None = None
    groups: Sequence[ErrorGroup] = ()
    pauses: Sequence[Pause] = ()
    tasks: Sequence[TaskRow] = ()
    running: Sequence[RunningLine] = ()
    deploys: Sequence[Marker] = field(default_factory=list)
    last_work: datetime | None = None
    """When Python workers last counted an attempt; None if none ever did."""
    late: Sequence[tuple[str, datetime]] = ()
    """Recurring jobs that are overdue, with the first run that was not added."""
    schedules: int = 0
    """Recurring jobs that are known."""
    last_scheduled: datetime | None = None
    """When one of them last added a job."""


def find(facts: OverviewFacts) -> list[OverviewFinding]:
    """The worst first; one that says that all is well if there is nothing else."""
    found = [finding for look in LOOKS for finding in look(facts)]
    found.sort(key=lambda finding: ORDER[finding.level])  # stable
    return found or [_all_well(facts)]


def _no_worker(facts: OverviewFacts) -> Iterator[OverviewFinding]:
    """Nobody runs jobs, although there are some, there were workers, or recurring jobs should add some."""
    sample = facts.sample
    if sample.workers != 0 or _others_work(facts):
        return
    reason, sentences = words("no_worker"), list[str]()
    level: Level = "bad"
    if sample.unreachable:
        verb, whose = ("does", "its") if sample.unreachable == 1 else ("do", "their")
        sentences.append(
            f"{count(sample.unreachable, 'worker')} {verb} not answer, and nobody recovers {whose} jobs."
        )
    if sample.ready.value:
        reason += f", and {count(sample.ready.value, 'job')} {_are(sample.ready.value)} ready"
        sentences.append(f"The oldest has waited for {duration(sample.oldest_wait)}.")
    if facts.last_work is not None:
        since = max(sample.at - facts.last_work, timedelta())
        sentences.append(f"The last job ran {duration(since.total_seconds(), units=1)} ago.")
        if since < RESTARTED_WITHIN and sample.oldest_wait < LONG_WAIT:
            level = "warn"
    if facts.schedules:
        sentences.append(
            f"{count(facts.schedules, 'recurring job')} {_are(facts.schedules)} known, and nobody adds "
            f"{'its' if facts.schedules == 1 else 'their'} jobs."
        )
    if not sample.ready.value and not sample.unreachable and facts.last_work is None:
        is_unused = facts.last_scheduled is None or sample.at - facts.last_scheduled > LONG_UNUSED
        if not facts.schedules or not is_unused:
            return
        level = "warn"
    yield OverviewFinding(
        level=level, title=title(reason), detail=" ".join(sentences), link="Open workers", path="/workers"
    )


def _others_work(facts: OverviewFacts) -> bool:
    """Whether workers of other runtimes run jobs.

    Jobs that Python workers completed before they ended are no sign of that, nor are those that killed ones
    have locked.
    """
    if facts.sample.running.value and not facts.sample.unreachable:
        return True
    rate, own = facts.rates.completed or 0.0, facts.hour.completed[-RATED:]
    known = sum(own) / (RATED - 1)  # rather more than less
    return rate > 0 and (not known or rate - known > max(OTHERS * rate, 1.0))


def _stopped(facts: OverviewFacts) -> Iterator[OverviewFinding]:
    """Steady work that has ended, although workers are alive."""
    done = facts.hour.completed
    before, since = done[-STEADY_FOR - STOPPED : -STOPPED], done[-STOPPED:]
    if not facts.sample.workers or not facts.hour.is_recorded or any(since) or len(before) < STEADY_FOR:
        return
    if len([number for number in before if number]) < 0.9 * STEADY_FOR or facts.sample.running.value:
        return
    usual = sum(before) / len(before)
    is_fed = facts.rates.added != 0
    yield OverviewFinding(
        level="warn",
        title=f"No job has completed for {STOPPED} minutes; before, {usual:,.0f} a minute did",
        detail=f"{facts.sample.ready} jobs are ready." if is_fed else "No job is added either.",
        link="Open workers",
        path="/workers",
    )


def _overdue(facts: OverviewFacts) -> Iterator[OverviewFinding]:
    """Recurring jobs whose time is over."""
    if not facts.late:
        return
    number, names = len(facts.late), _some([name for name, _ in facts.late])
    seconds = (facts.sample.at - facts.late[0][1]).total_seconds()
    yield OverviewFinding(
        level="bad" if seconds >= OVERDUE.total_seconds() else "warn",
        title=f"{count(number, 'recurring job')} {_are(number)} overdue: {names}",
        detail=f"The first one was due {duration(max(seconds, 0.0), units=1)} ago, and no job was added.",
        link="Open schedules",
        path="/schedules",
    )


def _failing(facts: OverviewFacts) -> Iterator[OverviewFinding]:
    found: list[tuple[float, str, OverviewFinding]] = []
    for name, series in facts.hour.tasks.items():
        failed, completed = sum(series.failed[-RECENT:]), sum(series.completed[-RECENT:])
        if failed >= FEW_FAILURES and failed >= FAILING * (failed + completed):
            finding = _failing_task(facts, name, series, failed / (failed + completed))
            found.append((failed, name, finding))
    yield from (finding for _, _, finding in sorted(found, key=lambda each: -each[0]))
    yield from _new_errors(facts, {name for _, name, _ in found})
    if not found:
        yield from _failing_elsewhere(facts)


def _new_errors(facts: OverviewFacts, named: set[str]) -> Iterator[OverviewFinding]:
    """Errors that have just begun: workers store errors sooner than they count attempts."""
    found: dict[str, list[ErrorGroup]] = {}
    for group in facts.groups:
        is_new = group.first_at >= facts.sample.at - timedelta(minutes=JUST_BEGUN)
        if is_new and group.errors >= FEW_FAILURES and group.task_identifier not in named:
            found.setdefault(group.task_identifier, []).append(group)
    for name, groups in found.items():
        failures = count(sum(each.errors for each in groups), "failure")
        what = "a new error" if len(groups) == 1 else f"{len(groups)} new errors"
        began = min(each.first_at for each in groups)
        yield _about_failures("bad", f"{name}: {failures}, {what}", name, groups, since=began)


def _about_failures(
    level: Level,
    title: str,
    task: str,
    groups: Sequence[ErrorGroup],
    *,
    since: datetime | None,
    detail: str = "",
) -> OverviewFinding:
    """It leads to the error group if there is one only, else to all of the task."""
    is_one = len(groups) == 1
    return OverviewFinding(
        level=level,
        title=title,
        since=since,
        detail=detail,
        link="Open the failure" if is_one else "Open failures",
        path=f"/failures/{groups[0].fingerprint}" if is_one else "/failures",
        query={} if is_one else {"task": task},
    )


def _failing_task(facts: OverviewFacts, name: str, series: TaskSeries, share: float) -> OverviewFinding:
    first = _first_failing(series)
    began = facts.hour.start + timedelta(minutes=first)
    total, minutes = round(sum(series.failed[first:])), len(series.failed) - first
    groups = [each for each in facts.groups if each.task_identifier == name and each.last_at >= began]
    errors = "" if not groups else ", one error" if len(groups) == 1 else f", {len(groups)} errors"
    group = groups[0] if len(groups) == 1 else None
    return _about_failures(
        "bad" if share >= FAILING_BADLY else "warn",
        f"{name}: {count(total, 'failure')} in {count(minutes, 'minute')}{errors}",
        name,
        groups,
        since=began if first else None,
        detail=" ".join(_causes(facts, began, group, share)),
    )


def _causes(facts: OverviewFacts, began: datetime, group: ErrorGroup | None, share: float) -> list[str]:
    """What happened before it began, and how bad it is."""
    sentences = []
    before = [each for each in facts.deploys if began - BEFORE <= each.at <= began + timedelta(minutes=1)]
    if before:
        seconds = max((began - before[-1].at).total_seconds(), 0)
        when = "Right when" if seconds < 60 else f"{duration(seconds)} after"
        sentences.append(f"{when} {before[-1].text}.")
    if group is not None and group.first_at >= began - timedelta(minutes=2):
        sentences.append("This error is new.")
    sentences.append(f"{share:.0%} of its attempts fail.")
    return sentences


def _first_failing(series: TaskSeries) -> int:
    """The first minute of the failures that go on now."""
    first, quiet = len(series.failed) - 1, 0
    for minute in range(len(series.failed) - 1, -1, -1):
        if series.failed[minute] > FAILING * series.completed[minute]:
            first, quiet = minute, 0
        elif (quiet := quiet + 1) > QUIET and minute < len(series.failed) - RECENT:
            break
    return first


def _failing_elsewhere(facts: OverviewFacts) -> Iterator[OverviewFinding]:
    """Failures of runtimes that keep no statistics, from the server's counters."""
    failed, done = facts.sample.failed_per_minute, facts.sample.deleted_per_minute
    if facts.hour.is_recorded and facts.hour.tasks:
        return
    if failed is None or done is None or failed < FEW_FAILURES or failed < FAILING * (failed + done):
        return
    text = f"About {failed:,.0f} attempts a minute fail"
    detail = "This is worked out from the server's counters: these workers record no errors."
    yield OverviewFinding(level="bad", title=text, detail=detail, link="Open failures", path="/failures")


def _paused(facts: OverviewFacts) -> Iterator[OverviewFinding]:
    every = next((each for each in facts.pauses if each.name is None), None)
    if every is not None:
        because = f" Reason: {every.reason}." if every.reason else ""
        reason = title(words("paused_everything"))
        yield OverviewFinding(level="warn", title=reason, detail=f"Python workers start no job.{because}")
    elif facts.pauses:
        yield OverviewFinding(level="warn", title=f"Paused: {_some([each.what for each in facts.pauses])}")


def _waiting(facts: OverviewFacts) -> Iterator[OverviewFinding]:
    wait, usual = facts.sample.oldest_wait, facts.usual_wait
    if wait < LONG_WAIT or (usual is not None and wait < usual * FAR_ABOVE):
        return
    compared = "" if usual is None else f" Usually it is under {duration(max(usual, 1))}."
    outlook = "" if facts.forecast is None else f" Backlog: {facts.forecast.text}."
    yield OverviewFinding(
        level="bad" if wait >= VERY_LONG_WAIT else "warn",
        title=f"A job has been ready for {duration(wait)} and is still waiting",
        detail=(_may_be_paused(facts) + compared + outlook).strip(),
        link="Open ready jobs",
        path="/jobs",
        query={"q": "state:ready"},
    )


def _may_be_paused(facts: OverviewFacts) -> str:
    """Jobs of what is paused are ready, and wait."""
    if not facts.pauses or any(each.name is None for each in facts.pauses):
        return ""
    if len(facts.pauses) > 1:
        return "It may belong to something that is paused."
    return f"It may belong to {facts.pauses[0].what}, which is paused."


def _unknown_tasks(facts: OverviewFacts) -> Iterator[OverviewFinding]:
    unknown = [task for task in facts.tasks if not task.is_known]
    if not unknown or not facts.sample.workers:
        return
    names = ", ".join(task.name for task in unknown[:3]) + (" and others" if len(unknown) > 3 else "")
    yield OverviewFinding(
        level="warn",
        title=title(words("unknown_task", name=f" {names}")),
        detail=f"{unknown[0].waiting} of its jobs wait." if len(unknown) == 1 else "Their jobs wait.",
        link="Open tasks",
        path="/tasks",
    )


def _unreachable(facts: OverviewFacts) -> Iterator[OverviewFinding]:
    lost = facts.sample.unreachable
    if lost and facts.sample.workers:  # with none alive, that is the finding
        text = f"{count(lost, 'worker')} {'does' if lost == 1 else 'do'} not answer"
        detail = "Another worker recovers their jobs after a while."
        yield OverviewFinding(level="warn", title=text, detail=detail, link="Open workers", path="/workers")


def _growing(facts: OverviewFacts) -> Iterator[OverviewFinding]:
    outlook = facts.forecast
    if outlook is not None and outlook.missing_slots:
        text, detail = f"The backlog {outlook.text}", f"{facts.sample.ready} jobs are ready."
        yield OverviewFinding(level="warn", title=text, detail=detail, link="Open tasks", path="/tasks")


def _long_running(facts: OverviewFacts) -> Iterator[OverviewFinding]:
    long = [line for line in facts.running if line.is_long]
    if not long:
        return
    first = long[0]
    seconds = (facts.sample.at - first.started_at).total_seconds()
    usual = f"; its task usually takes under {duration(first.usual)}" if first.usual else ""
    yield OverviewFinding(
        level="warn",
        title=f"{count(len(long), 'job')} {'runs' if len(long) == 1 else 'run'} much longer than usual",
        detail=f"Job {first.job_id} of {first.task} has run for {duration(seconds)}{usual}.",
        link="Open the job",
        path=f"/jobs/{first.job_id}",
    )


def _all_well(facts: OverviewFacts) -> OverviewFinding:
    sample, rate = facts.sample, facts.rates.completed
    if sample.workers == 0 and not rate and not sample.running.value:
        waiting = f"{sample.scheduled} jobs are scheduled." if sample.scheduled.value else ""
        detail = "Jobs run as soon as a worker is started."
        return OverviewFinding(
            level="idle", title="No worker has run yet", detail=f"{waiting} {detail}".strip(),
            link="Open workers", path="/workers",
        )  # fmt: skip
    busy = "" if rate is None else f"{rate:,.0f}/min, " if rate >= 1 or rate == 0 else f"{rate:.1f}/min, "
    if sample.ready.value:
        waits = f"nothing waits longer than {duration(max(sample.oldest_wait, 1))}"
    else:
        waits = "nothing waits"
    workers = [] if sample.workers is None else [f"{count(sample.workers, 'worker')} alive."]
    if sample.failed.value:
        noun = "job" if sample.failed.value == 1 else "jobs"
        workers.append(f"{sample.failed} permanently failed {noun} {_are(sample.failed.value)} in the table.")
    return OverviewFinding(level="ok", title=f"All well: {busy}{waits}", detail=" ".join(workers))


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _some(names: Sequence[str]) -> str:
    """The first three."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


LOOKS = (
    _no_worker, _failing, _stopped, _overdue, _paused, _waiting, _unknown_tasks, _unreachable, _growing,
    _long_running,
)  # fmt: skip


# -- forecast -----------------------------------------------------------------------------------------------

FEW = 20
"""Ready jobs that are no backlog."""
STEADY = 0.05
"""Share of the arrivals within which a change is no trend."""
BUSY = 0.8
"""Share of the slots from which on they are what holds jobs up."""
FARTHEST = 30 * 86400.0
"""Seconds; a forecast beyond is none."""


def forecast(
    *,
    ready: int,
    added: float | None,
    completed: float | None,
    run_time: float | None,
    busy: float,
    slots: int | None,
) -> Forecast | None:
    """From rates per minute, the mean run time in seconds, and busy slots; None if too little is known."""
    if added is None or completed is None:
        return None
    growth = added - completed
    if abs(growth) <= max(STEADY * added, 0.5):
        text = "steady" if ready > FEW else "nothing piles up"
        return Forecast(growth=growth, text=text)
    if growth < 0:
        return _shrinking(ready, growth)
    if ready <= FEW:
        return Forecast(growth=growth, text="nothing piles up")
    return _rising(growth, run_time, busy, slots)


def _shrinking(ready: int, growth: float) -> Forecast:
    empty_in = ready / -growth * 60
    if ready <= FEW or empty_in > FARTHEST:
        return Forecast(growth=growth, text="nothing piles up" if ready <= FEW else "shrinks slowly")
    text = f"empty in {duration(max(empty_in, 1), units=1)}"
    return Forecast(growth=growth, empty_in=empty_in, text=text)


def _rising(growth: float, run_time: float | None, busy: float, slots: int | None) -> Forecast:
    rate = f"{growth:,.0f}" if growth >= 10 else f"{growth:.1f}"
    text = f"grows by {rate}/min"
    if not slots:
        return Forecast(growth=growth, text=text)
    if busy < slots * BUSY:
        return Forecast(growth=growth, text=f"{text}, though slots are free")
    if not run_time:
        return Forecast(growth=growth, text=text)
    missing = max(ceil(growth * run_time / 60), 1)
    return Forecast(
        growth=growth, missing_slots=missing, text=f"{text}: {count(missing, 'more slot')} would hold it"
    )
