"""The flags that choose jobs: those of `list`, and those of commands that change jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from ...database.statements.job_filter import CONDITIONS, FILTER_STATES
from .parameters import AGO, JOB_ID

if TYPE_CHECKING:
    from ...database.statements.job_filter import JobFilter

Command = TypeVar("Command", bound=Callable[..., Any])


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
        "--rate",
        type=click.FloatRange(min=0, min_open=True),
        metavar="N",
        help="At most N jobs per second.",
    ),
    click.option("--dry-run", is_flag=True, help="Only count the jobs that would be changed."),
    click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation."),
]
NAMES = (
    "state", *(field for field, _ in CONDITIONS.values()), "error", "created_since", "created_until",
    "older_than", "failed_since", "failed_until",
)  # fmt: skip


def filter_flags(command: Command) -> Command:
    """The flags that filter jobs."""
    for option in reversed(FILTERS):
        command = option(command)
    return command


def selection_flags(command: Command) -> Command:
    """The arguments that name jobs by id or key, or choose all that match a filter."""
    by_key = click.option(
        "--key", "keys", multiple=True, metavar="KEY", help="Name a job by its key; repeatable."
    )
    for option in reversed([by_key, *FILTERS, *BULK_FLAGS]):
        command = option(command)
    return click.argument("ids", nargs=-1, type=JOB_ID, metavar="[ID]...")(command)


def filter_from(values: Mapping[str, Any], **more: Any) -> JobFilter:
    """The filter that the flags describe; `more` are other conditions."""
    from ...database.statements.job_filter import JobFilter

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
