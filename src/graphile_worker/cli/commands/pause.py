"""`graphile-worker pause`, `resume`, `limits` and `queues`: what may run, and how much of it at once.

`limits` and `queues` show what there is, and change how much may run while workers run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from ...diagnostics.json_shapes import limit_as_json, pause_as_json, queue_as_json
from ...values.concurrency import MOST
from ...values.job import Pause
from ...values.spec import MAX_QUEUE_CONCURRENCY
from ...values.text import count, duration, parse_time_phrase
from ..support.command import Output, client_command
from ..support.output import ESTIMATE, cell, print_objects, print_table
from ..support.parameters import EXACT_OPTION, PERIOD, WHEN, Parsed, flags, several

if TYPE_CHECKING:
    from ...client import WorkerUtils
    from ...database.statements.inspection import QueueSummary
    from ...database.statements.limits import LimitSummary

MOST_NOTES = 10
MOST_QUEUES = 100
"""That are shown by default."""
ACTIONS = click.argument(
    "action", type=click.Choice(("list", "set", "reset")), default="list", metavar="[list|set|reset]"
)
NAME = click.argument("name", required=False, metavar="[NAME]")
targets = flags(
    several("--queue", "queues", "NAME", "This named queue; repeatable."),
    several("--task", "tasks", "TASK", "This task; repeatable."),
    several("--schedule", "schedules", "NAME", "This recurring job; repeatable."),
    several("--worker", "workers", "ID", "This worker pool; repeatable."),
    click.option("--all", "everything", is_flag=True, help="Every task."),
)
"""The flags that say what to pause or to resume."""


def _check_pause(
    period: timedelta | None, until: datetime | timedelta | None, reason: str | None, **targets: Any
) -> None:
    if period is not None and until is not None:
        raise click.UsageError("--for and --until cannot be combined.")
    for flag, value in (("--for", period), ("--until", until)):
        if value is not None and _is_over(value):
            raise click.UsageError(f"{flag} must be in the future.")
    has_terms = period is not None or until is not None or reason is not None
    if has_terms and not any(targets.values()):
        raise click.UsageError("Name what to pause: --queue, --task, --schedule, --worker or --all.")
    if targets["workers"] and (period is not None or until is not None):
        raise click.UsageError("--worker cannot be combined with --for and --until.")


def _is_over(value: datetime | timedelta) -> bool:
    return value <= timedelta(0) if isinstance(value, timedelta) else value <= datetime.now(UTC)


def _audited_pause(
    period: timedelta | None, until: datetime | timedelta | None, reason: str | None, **targets: Any
) -> str:
    return "pause" if any(targets.values()) else ""


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

    Running jobs finish. Jobs can be added, and wait. Workers of every runtime obey the pause of a queue.
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


def _check_resume(**targets: Any) -> None:
    if not any(targets.values()):
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
    print_objects(found, "paused=what, since=paused_at, until, reason", empty="Nothing is paused.")


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
    from ...database.statements.inspection import known_tasks
    from ...values.text import did_you_mean, similar_names

    async with utils.with_pg_client() as connection:
        known = await known_tasks(connection, utils.schema)
    good = known.running | known.registered
    unknown = {name: did_you_mean(similar_names(name, good)) for name in tasks if name not in known.recorded}
    return [
        f"graphile-worker: warning: the database has no task {name!r}{question}"
        for name, question in unknown.items()
    ]


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


def _check_action(
    command: str, noun: str, action: str, name: str | None, bounds: Mapping[str, Any], needed: str
) -> None:
    """Refuse what does not fit the action; `bounds` are the values that `set` takes."""
    given = [f"--{flag}" for flag, value in bounds.items() if value is not None]
    if action == "list" and name is not None:
        raise click.UsageError(f"`{command} list` takes no NAME.")
    if action != "list" and name is None:
        raise click.UsageError(f"`{command} {action}` needs the NAME of a {noun}.")
    if action != "set" and given:
        raise click.UsageError(f"{given[0]} is for `{command} set NAME`.")
    if action == "set" and not given:
        raise click.UsageError(f"Give {needed}.")


def _check_limits(action: str, name: str | None, **bounds: Any) -> None:
    _check_action("limits", "limit", action, name, bounds, "--concurrency, --rate or --burst")


@client_command("limits", check=_check_limits, audit={"set": "set_limit", "reset": "reset_limit"})
@ACTIONS
@NAME
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
    "--burst", type=click.IntRange(1, MOST), metavar="N", help="Jobs that may start at once when idle."
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

    Workers obey at once. What is set by hand overrides the code until it is reset, even across restarts of
    workers.

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
    return Output(lambda: [limit_as_json(limit) for limit in found], lambda: _print_limits(found))


def _print_limits(found: list[LimitSummary]) -> None:
    print_objects(
        found,
        "limit=name, concurrency, rate, burst, running, set by hand=overridden, tasks",
        rate=lambda limit: limit.rate and f"{limit.rate[0]} in {duration(limit.rate[1])}",
        overridden=lambda limit: ", ".join(limit.overridden),
        tasks=lambda limit: ", ".join(limit.tasks),
        empty="There are no limits.",
    )


def _check_queues(
    action: str, name: str | None, concurrency: int | None, limit: int | None, exact: bool
) -> None:
    _check_action("queues", "queue", action, name, {"concurrency": concurrency}, "--concurrency")
    if action != "list" and (limit is not None or exact):
        raise click.UsageError("--limit and --exact are for `queues list`.")


@client_command("queues", check=_check_queues, audit=dict.fromkeys(("set", "reset"), "set_queue_concurrency"))
@ACTIONS
@NAME
@click.option(
    "--concurrency",
    type=click.IntRange(1, MAX_QUEUE_CONCURRENCY),
    metavar="N",
    help="Jobs that may run at once.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    metavar="N",
    help=f"Maximum number of queues to show; {MOST_QUEUES} if it is not given.",
)
@EXACT_OPTION
async def queues_command(
    utils: WorkerUtils, action: str, name: str | None, concurrency: int | None, limit: int | None, exact: bool
) -> Output:
    """Show named queues, longest first, or set how many jobs of one may run at once.

    Workers obey at once. What is set by hand overrides the tasks until it is reset, even across restarts of
    workers.

    \b
    graphile-worker queues --limit 10
    graphile-worker queues set tenant:7 --concurrency 10
    graphile-worker queues reset tenant:7
    """
    if action == "list" or name is None:
        found = await utils.queues.list(limit=limit or MOST_QUEUES, exact=exact)
        return Output(lambda: [queue_as_json(queue) for queue in found], lambda: _print_queues(found))
    await utils.queues.set_concurrency(name, concurrency)
    text = (
        f"The tasks of {cell(name)} decide again how many of its jobs run at once."
        if concurrency is None
        else f"Up to {count(concurrency, 'job')} of {cell(name)} may run at once."
    )
    return Output(lambda: {"queue_name": name, "concurrency": concurrency}, lambda: click.echo(text))


def _print_queues(found: list[QueueSummary]) -> None:
    shown: dict[str, list[Any]] = {
        "queue": [queue.queue_name for queue in found],
        "concurrency": [queue.concurrency if queue.concurrency > 1 else None for queue in found],
        "jobs": [queue.jobs for queue in found],
        "ready": [queue.ready for queue in found],
        "locked by": [queue.locked_by for queue in found],
        "locked at": [queue.locked_at for queue in found],
        "state": [None if queue.pause is None else f"paused{queue.pause.terms}" for queue in found],
    }
    for name in ("concurrency", "state"):
        if not any(shown[name]):
            del shown[name]
    print_table(tuple(shown), list(zip(*shown.values(), strict=True)), empty="No named queues.")
    if any(queue.is_estimate for queue in found):
        click.echo(ESTIMATE)
