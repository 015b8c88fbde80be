"""Chooses jobs by flags, and changes all that match a filter.

`filter_flags` are those of `list`, `selection_flags` those of commands that change jobs. `change_matching`
counts the jobs, asks, and shows the progress until Ctrl-C stops it.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ...database.statements.job_filter import CONDITIONS, FILTER_STATES, JobFilter
from ...diagnostics.json_shapes import bulk_as_json
from ...values.text import count
from .command import Output, given_command
from .output import cell, progress_bar
from .parameters import AGO, JOB_ID, flags

if TYPE_CHECKING:
    from ...database.statements.bulk_changes import BulkReport

FLAGS = {"worker": "--locked-by"}
"""Conditions whose flag has another name."""
FILTERS = [
    click.option("--state", type=click.Choice(FILTER_STATES), help="Only jobs in this state."),
    *(
        click.option(FLAGS.get(name, f"--{name}"), field, metavar=name.upper(), help=f"Only jobs {how}.")
        for name, (field, how) in CONDITIONS.items()
    ),
    click.option(
        "--error", metavar="TEXT", help="Only jobs with this text in their last error; case is ignored."
    ),
    click.option(
        "--since",
        "created_since",
        type=AGO,
        metavar="WHEN",
        help="Only jobs added since then: 2030-01-31T12:00:00Z, or a period before now: 5m, 2h, 1d12h.",
    ),
    click.option("--until", "created_until", type=AGO, metavar="WHEN", help="Only jobs added before then."),
    click.option("--older-than", type=AGO, metavar="PERIOD", help="Only jobs added longer ago: 12h, 30d."),
    click.option(
        "--failed-since", type=AGO, metavar="WHEN", help="Only jobs that failed permanently since then."
    ),
    click.option(
        "--failed-until", type=AGO, metavar="WHEN", help="Only jobs that failed permanently before then."
    ),
]
BULK_FLAGS = [
    click.option("--all", "everything", is_flag=True, help="Choose all jobs."),
    click.option(
        "--limit", type=click.IntRange(min=1), metavar="N", help="At most N jobs, the oldest first."
    ),
    click.option(
        "--rate", type=click.FloatRange(min=0, min_open=True), metavar="N", help="At most N jobs per second."
    ),
    click.option("--dry-run", is_flag=True, help="Only count the jobs that would be changed."),
    click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation."),
]
NAMES = (
    "state", *(field for field, _ in CONDITIONS.values()), "error", "created_since", "created_until",
    "older_than", "failed_since", "failed_until",
)  # fmt: skip


filter_flags = flags(*FILTERS)
"""The flags that filter jobs."""
selection_flags = flags(
    click.argument("ids", nargs=-1, type=JOB_ID, metavar="[ID]..."),
    click.option("--key", "keys", multiple=True, metavar="KEY", help="Name a job by its key; repeatable."),
    *FILTERS,
    *BULK_FLAGS,
)
"""The arguments that name jobs by id or key, or choose all that match a filter."""


def filter_from(values: Mapping[str, Any], **more: Any) -> JobFilter:
    conditions = {name: values[name] for name in NAMES}
    older_than = conditions.pop("older_than")
    if older_than is not None:
        if conditions["created_until"] is not None:
            raise click.UsageError("Use --until or --older-than, not both.")
        conditions["created_until"] = older_than
    return JobFilter(**conditions, **more)


class Selection(msgspec.Struct, frozen=True):
    """The jobs to change: by id and key, or all that match `filter`."""

    ids: tuple[int, ...]
    keys: tuple[str, ...]
    filter: JobFilter | None
    is_everything: bool
    rate: float | None
    is_dry_run: bool
    is_confirmed: bool


def selection_from(values: Mapping[str, Any]) -> Selection:
    """What the flags select. Refuses to select nothing, or jobs by name and by filter at once."""
    ids, keys, everything = values["ids"], values["keys"], values["everything"]
    is_named = bool(ids or keys)
    is_filtered = any(values[name] is not None for name in NAMES)
    if is_named and (is_filtered or everything):
        raise click.UsageError(
            "Name jobs by id or --key, or choose them by filters such as --state, not both."
        )
    if everything and is_filtered:
        raise click.UsageError("--all means every job; remove it, or the filters.")
    if not is_named and not is_filtered and not everything:
        raise click.UsageError(
            "Name the jobs by id or with --key, choose them by filters such as --state, or use --all."
        )
    for flag in ("limit", "rate", "dry_run"):
        if is_named and values[flag]:
            raise click.UsageError(f"--{flag.replace('_', '-')} is for filters; the jobs are named already.")
    return Selection(
        ids=ids,
        keys=keys,
        filter=None if is_named else filter_from(values, limit=values["limit"]),
        is_everything=everything,
        rate=values["rate"],
        is_dry_run=values["dry_run"],
        is_confirmed=values["yes"],
    )


Change = Callable[..., Awaitable["BulkReport"]]
"""A method of the client, without the options of a bulk change."""

NAMED_TASKS = 5
"""Tasks that are named in a sentence."""
LONG = 5_000
"""Jobs from which there is a progress bar."""


class Words(msgspec.Struct, frozen=True):
    """How to speak of a change: `reschedule`, `rescheduled`, `rescheduling`."""

    verb: str
    done: str
    doing: str


class NotConfirmedError(click.ClickException):
    """The change was not confirmed, and there is no terminal to ask at."""

    exit_code = 2


Notes = Callable[["BulkReport"], list[str]]
"""Sentences about a report, before the change (a dry run) or after it."""


async def change_matching(
    selection: Selection, words: Words, change: Change, notes: Notes = lambda report: []
) -> Output:
    chosen = {"filter": selection.filter, "all": selection.is_everything}
    counted = await change(**chosen, dry_run=True)
    sentences = [*_about_running(counted), *notes(counted)]
    if counted.changed == 0:
        running = [f"Running jobs are left alone: {counted.skipped:,}."] if counted.skipped else []
        return _output(counted, [f"No jobs to {words.verb}.", *running])
    if selection.is_dry_run:
        return _output(counted, [f"This would {words.verb} {_jobs(counted)}.", *sentences])
    if not selection.is_confirmed and not _confirm(words, counted, sentences):
        return Output(None, lambda: click.echo("Nothing was changed.", err=True), status=1)
    pace = {} if selection.rate is None else {"jobs_per_second": selection.rate}
    report, stopped_by = await _run(change, words, counted, chosen | pace)
    if stopped_by is None:
        lines = [f"{words.done.capitalize()} {_jobs(report)}.", *_about_running(report)]
        return _output(report, lines, notes=notes(report))
    line = _stopped(words, report.changed, counted)
    return _output(report, [line], notes=notes(report), status=128 + stopped_by)


def _output(
    report: BulkReport, lines: Sequence[str], *, notes: Sequence[str] = (), status: int = 0
) -> Output:
    return Output(
        lambda: bulk_as_json(report),
        lambda: click.echo(" ".join(lines)),
        notes=notes,
        status=status,
        jobs=0 if report.is_dry_run else report.changed,
    )


async def _run(
    change: Change, words: Words, counted: BulkReport, options: dict[str, Any]
) -> tuple[BulkReport, int | None]:
    """The report, and the signal that stopped the change."""
    wanted = counted.changed >= LONG
    stop = asyncio.Event()
    with (
        progress_bar(f"{words.doing} jobs", total=counted.changed, wanted=wanted) as bar,
        _signals_that_stop(stop) as received,
    ):
        changed = 0

        def show(report: BulkReport, _ids: list[int]) -> None:
            nonlocal changed
            changed = report.changed
            bar.show(f"{changed:,} jobs", done=changed)

        try:
            report = await change(**options, up_to=counted.up_to, stop=stop, on_step=show)
        except Exception:
            click.echo(_stopped(words, changed, counted), err=True)
            raise
    return report, None if report.is_complete else received[0]


def _stopped(words: Words, changed: int, counted: BulkReport) -> str:
    return f"Stopped: {words.done} {changed:,} of {count(counted.changed, 'job')}."


@contextmanager
def _signals_that_stop(stop: asyncio.Event) -> Iterator[list[int]]:
    """The first Ctrl-C or SIGTERM sets the event; the next one ends the process."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def receive(number: int) -> None:
        received.append(number)
        stop.set()
        for each in before:
            loop.remove_signal_handler(each)

    for number in before:
        loop.add_signal_handler(number, receive, number)
    try:
        yield received
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


def _confirm(words: Words, counted: BulkReport, sentences: Sequence[str]) -> bool:
    """Ask on the terminal. Raises NotConfirmedError where there is none."""
    if not sys.stdin.isatty():
        would = " ".join([f"This would {words.verb} {_jobs(counted)}.", *sentences])
        raise NotConfirmedError(
            f"{would} To do it without a question, add --yes:\n\n    {given_command('--yes')}"
        )
    question = " ".join([f"This will {words.verb} {_jobs(counted)}.", *sentences, "Continue?"])
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # the event loop's handler would wait
    try:
        return click.confirm(question, err=True)
    finally:
        signal.signal(signal.SIGINT, before)


def _jobs(report: BulkReport) -> str:
    """The number of jobs, and of which tasks they are: `5 jobs (send_email 3, report 2)`."""
    tasks = sorted(report.tasks.items(), key=lambda entry: (-entry[1], entry[0]))
    shown = [
        cell(name) if len(tasks) == 1 else f"{cell(name)} {jobs:,}" for name, jobs in tasks[:NAMED_TASKS]
    ]
    if len(tasks) > NAMED_TASKS:
        shown.append(f"{count(len(tasks) - NAMED_TASKS, 'other task')}")
    return f"{count(report.changed, 'job')} ({', '.join(shown)})" if shown else count(report.changed, "job")


def _about_running(report: BulkReport) -> list[str]:
    if not report.skipped:
        return []
    verb = "would be" if report.is_dry_run else "was" if report.skipped == 1 else "were"
    return [f"{count(report.skipped, 'running job')} {verb} left alone."]
