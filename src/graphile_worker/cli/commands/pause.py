"""`graphile-worker pause`, `resume` and `limits`: what may run, and how much of it at once.

`limits` shows limits, and changes their bounds while workers run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from ...diagnostics.json_shapes import limit_as_json, pause_as_json
from ...values.concurrency import MOST
from ...values.job import Pause
from ...values.text import duration, parse_time_phrase
from ..support.command import Output, client_command
from ..support.output import cell, print_table
from ..support.parameters import PERIOD, WHEN, Parsed

if TYPE_CHECKING:
    from ...client import WorkerUtils
    from ...database.statements.limits import LimitSummary

MOST_NOTES = 10
QUEUE = click.option("--queue", "queues", multiple=True, metavar="NAME", help="This named queue; repeatable.")
TASK = click.option("--task", "tasks", multiple=True, metavar="TASK", help="This task; repeatable.")
SCHEDULE = click.option(
    "--schedule", "schedules", multiple=True, metavar="NAME", help="This recurring job; repeatable."
)
WORKER = click.option(
    "--worker", "workers", multiple=True, metavar="ID", help="This worker pool fetches no jobs; repeatable."
)
ALL = click.option("--all", "everything", is_flag=True, help="Every task.")


def targets(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags that say what to pause or to resume."""
    return QUEUE(TASK(SCHEDULE(WORKER(ALL(function)))))


def _check_pause(
    queues: Sequence[str],
    tasks: Sequence[str],
    schedules: Sequence[str],
    workers: Sequence[str],
    everything: bool,
    period: timedelta | None,
    until: datetime | timedelta | None,
    reason: str | None,
) -> None:
    if period is not None and until is not None:
        raise click.UsageError("--for and --until cannot be combined.")
    for flag, value in (("--for", period), ("--until", until)):
        if value is not None and _is_over(value):
            raise click.UsageError(f"{flag} must be in the future.")
    has_terms = period is not None or until is not None or reason is not None
    if has_terms and not (queues or tasks or schedules or workers or everything):
        raise click.UsageError("Name what to pause: --queue, --task, --schedule, --worker or --all.")
    if workers and (period is not None or until is not None):
        raise click.UsageError("--worker cannot be combined with --for and --until.")


def _is_over(value: datetime | timedelta) -> bool:
    return value <= timedelta(0) if isinstance(value, timedelta) else value <= datetime.now(UTC)


def _audited_pause(
    queues: Sequence[str],
    tasks: Sequence[str],
    schedules: Sequence[str],
    workers: Sequence[str],
    everything: bool,
    **_: Any,
) -> str:
    return "pause" if queues or tasks or schedules or workers or everything else ""


@client_command("pause", check=_check_pause, audit=_audited_pause)
@targets
@click.option(
    "--for", "period", type=PERIOD, metavar="PERIOD", help="Resume by itself after this time: 10m, 2h."
)
@click.option(
    "--until", type=WHEN, metavar="WHEN", help="Resume by itself at this time: 2030-01-31T12:00:00Z."
)
@click.option("--reason", metavar="TEXT", help="Why; shown with the pause.")
async def pause_command(
    utils: WorkerUtils,
    queues: Sequence[str],
    tasks: Sequence[str],
    schedules: Sequence[str],
    workers: Sequence[str],
    everything: bool,
    period: timedelta | None,
    until: datetime | timedelta | None,
    reason: str | None,
) -> Output:
    """Start no more jobs of a queue, of a task, or at all. Without flags, list what is paused.

    Running jobs go on. Jobs can be added, and wait. Workers of every runtime obey the pause of a queue.
    Only workers of this package obey the others. A pause of a recurring job skips its runs. A worker that is
    paused finishes the jobs that it runs, and fetches no more until it is resumed.

    \b
    graphile-worker pause
    graphile-worker pause --queue imports --reason "bad file"
    graphile-worker pause --task send_email --for 10m
    graphile-worker pause --schedule nightly --for 1d
    graphile-worker pause --worker pool-0123456789abcdef
    graphile-worker pause --all --until 2030-01-31T12:00:00Z
    """
    if not (queues or tasks or schedules or workers or everything):
        found = await utils.queues.list_pauses()
        return Output(lambda: [pause_as_json(pause) for pause in found], lambda: print_pauses(found))
    notes = await _about_names(utils, tasks)
    end = period if period is not None else until
    pauses = [await utils.queues.pause(name, until=end, reason=reason) for name in queues]
    pauses += [await utils.pause(task=name, until=end, reason=reason) for name in tasks]
    pauses += [await utils.schedules.pause(name, until=end, reason=reason) for name in schedules]
    for name in workers:
        await utils.workers.pause(name, reason=reason)
    if everything:
        pauses.append(await utils.pause(all=True, until=end, reason=reason))

    def text() -> None:
        _print_paused(pauses)
        for name in workers:
            click.echo(f"Paused worker {_line(name)}: it fetches no more jobs.")

    return Output(
        lambda: [*(pause_as_json(pause) for pause in pauses), *({"worker_id": name} for name in workers)],
        text,
        notes,
    )


def _check_resume(
    queues: Sequence[str],
    tasks: Sequence[str],
    schedules: Sequence[str],
    workers: Sequence[str],
    everything: bool,
) -> None:
    if not (queues or tasks or schedules or workers or everything):
        raise click.UsageError(
            "Name what to resume: --queue, --task, --schedule, --worker or --all. `graphile-worker pause` "
            "lists what is paused."
        )


@client_command("resume", check=_check_resume, audit="resume")
@targets
async def resume_command(
    utils: WorkerUtils,
    queues: Sequence[str],
    tasks: Sequence[str],
    schedules: Sequence[str],
    workers: Sequence[str],
    everything: bool,
) -> Output:
    """End pauses.

    --all undoes only `pause --all`. Queues and tasks that were paused by name stay paused.

    \b
    graphile-worker resume --queue imports
    graphile-worker resume --task send_email --task send_sms
    graphile-worker resume --all
    """
    resumed = [(Pause(queue_name=name), await utils.queues.resume(name)) for name in queues]
    resumed += [(Pause(task_identifier=name), await utils.resume(task=name)) for name in tasks]
    resumed += [(Pause(schedule=name), await utils.schedules.resume(name)) for name in schedules]
    if everything:
        resumed.append((Pause(), await utils.resume(all=True)))
    paused_workers = [(name, await utils.workers.resume(name)) for name in workers]
    left = await utils.queues.list_pauses()
    return Output(
        lambda: [
            *(
                {
                    "task_identifier": pause.task_identifier,
                    "queue_name": pause.queue_name,
                    "schedule": pause.schedule,
                    "was_paused": was_paused,
                }
                for pause, was_paused in resumed
            ),
            *({"worker_id": name, "was_paused": was_paused} for name, was_paused in paused_workers),
        ],
        lambda: _print_resumed(resumed, paused_workers),
        notes=paused_notes(left, "Still paused"),
    )


def print_pauses(found: Sequence[Pause]) -> None:
    """The table of everything that is paused."""
    rows = [(pause.what, pause.paused_at, pause.until, pause.reason) for pause in found]
    print_table(("paused", "since", "until", "reason"), rows, empty="Nothing is paused.")


def paused_notes(found: Sequence[Pause], title: str = "Paused") -> list[str]:
    """Lines about pauses, for commands that are about something else."""
    notes = [f"{title}: {_line(pause.what + pause.terms)}." for pause in found[:MOST_NOTES]]
    if len(found) > MOST_NOTES:
        notes.append(f"{title}: {len(found) - MOST_NOTES:,} more; `graphile-worker pause` lists all.")
    return notes


def _line(text: str) -> str:
    """The whole text on one line."""
    return cell(" ".join(text.split()), longest=None)


def _print_paused(pauses: Sequence[Pause]) -> None:
    for pause in pauses:
        click.echo(f"Paused {_line(pause.what + pause.terms)}.")


def _print_resumed(resumed: Sequence[tuple[Pause, bool]], workers: Sequence[tuple[str, bool]]) -> None:
    for name, was_paused in workers:
        fetches = "fetches jobs again" if was_paused else "was not paused"
        click.echo(f"Worker {_line(name)} {fetches}.")
    for pause, was_paused in resumed:
        what = _line(pause.what)
        click.echo(f"Resumed {what}." if was_paused else f"{what[0].upper()}{what[1:]} was not paused.")


async def _about_names(utils: WorkerUtils, tasks: Sequence[str]) -> list[str]:
    """A line about each task that the database has never seen; its name may be misspelt."""
    if not tasks:
        return []
    from ...database.statements.task_names import known_tasks
    from ...values.text import did_you_mean, similar_names

    async with utils.with_pg_client() as connection:
        known = await known_tasks(connection, utils.schema)
    good = known.running | known.registered
    unknown = {name: did_you_mean(similar_names(name, good)) for name in tasks if name not in known.recorded}
    return [
        f"graphile-worker: warning: the database has no task {name!r}{question}"
        for name, question in unknown.items()
    ]


ACTIONS = ("list", "set", "reset")
COLUMNS = ("limit", "concurrency", "rate", "burst", "running", "set by hand", "tasks")


def _start_rate(text: str) -> tuple[int, timedelta]:
    """A number of starts in a period: `500/1m`, `10/s`."""
    count, sign, period = text.replace(" ", "").lower().partition("/")
    try:
        seconds = parse_time_phrase(f"1{period}" if period in ("s", "m", "h", "d", "w") else period)
        if not sign or not 0 < int(count) <= MOST or seconds <= 0:
            raise ValueError
    except ValueError:
        raise ValueError(f"{text!r} is not a rate such as 500/1m or 10/s") from None
    return int(count), timedelta(seconds=seconds)


def _check(action: str, name: str | None, **bounds: Any) -> None:
    given = [f"--{flag}" for flag, value in bounds.items() if value is not None]
    if action == "list" and name is not None:
        raise click.UsageError("`limits list` takes no NAME.")
    if action != "list" and name is None:
        raise click.UsageError(f"`limits {action}` needs the NAME of a limit.")
    if action != "set" and given:
        raise click.UsageError(f"{given[0]} is for `limits set NAME`.")
    if action == "set" and not given:
        raise click.UsageError("Give --concurrency, --rate or --burst.")


def _audited(action: str, **_: Any) -> str:
    return {"set": "set_limit", "reset": "reset_limit"}.get(action, "")


@client_command("limits", check=_check, audit=_audited)
@click.argument("action", type=click.Choice(ACTIONS), default="list", metavar="[list|set|reset]")
@click.argument("name", required=False, metavar="[NAME]")
@click.option(
    "--concurrency",
    type=click.IntRange(0, MOST),
    metavar="N",
    help="Jobs that may run at once; 0 stops them.",
)
@click.option(
    "--rate", type=Parsed("rate", _start_rate), metavar="N/PERIOD", help="Jobs that may start: 500/1m, 10/s."
)
@click.option(
    "--burst", type=click.IntRange(1, MOST), metavar="N", help="Jobs that may start at once after a rest."
)
async def limits_command(
    utils: WorkerUtils,
    action: str,
    name: str | None,
    concurrency: int | None,
    rate: tuple[int, timedelta] | None,
    burst: int | None,
) -> Output:
    """Show limits, set their bounds by hand, or reset them to those in the code.

    Workers obey at once. What is set by hand wins over the code and stays until it is reset, also when
    workers start again.

    \b
    graphile-worker limits
    graphile-worker limits set openai --concurrency 5 --rate 100/1m
    graphile-worker limits reset openai
    """
    if action == "set" and name is not None:
        found = [await utils.set_limit(name, concurrency=concurrency, rate=rate, burst=burst)]
    elif action == "reset" and name is not None:
        found = [await utils.limits.reset(name)]
    else:
        found = await utils.limits.list()
    return Output(
        lambda: [limit_as_json(limit) for limit in found],
        lambda: print_table(COLUMNS, [_row(limit) for limit in found], empty="There are no limits."),
    )


def _row(limit: LimitSummary) -> tuple[Any, ...]:
    return (
        limit.name,
        limit.concurrency,
        None if limit.rate is None else f"{limit.rate[0]} in {duration(limit.rate[1])}",
        limit.burst,
        limit.running,
        ", ".join(limit.overridden),
        ", ".join(limit.tasks),
    )
