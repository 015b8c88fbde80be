"""`graphile-worker schedules`: recurring jobs, and running one now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from ...json_shapes import schedule_as_json
from ..support.command import Output, client_command
from ..support.output import print_table

if TYPE_CHECKING:
    from ...client import WorkerUtils
    from ...queries.schedules import Schedule

HORIZON = timedelta(days=366 * 9)


def _audited(run: str | None) -> str:
    return "run_schedule" if run else ""


@client_command("schedules", audit=_audited)
@click.option("--run", metavar="NAME", help="Add the job of this recurring job now.")
async def schedules_command(utils: WorkerUtils, run: str | None) -> Output:
    """List recurring jobs: when they run, when they last did, which workers have them.

    Running workers of this package tell what each is. Of those that only Node has, nothing is known but when
    a job was last added. To pause one, use `graphile-worker pause --schedule`.

    \b
    graphile-worker schedules
    graphile-worker schedules --run nightly
    """
    if run is not None:
        job = await utils.run_schedule_now(run)
        return Output(
            lambda: {"identifier": run, "job_id": job.id}, lambda: click.echo(f"Added job {job.id}."), jobs=1
        )
    found = await utils.list_schedules()
    return Output(lambda: [schedule_as_json(each) for each in found], lambda: _print(found))


def _print(found: list[Schedule]) -> None:
    columns = ("schedule", "when", "zone", "task", "next", "last", "workers", "state")
    now = datetime.now(UTC)
    print_table(columns, [_row(each, now) for each in found], empty="There are no recurring jobs.")


def _row(schedule: Schedule, now: datetime) -> tuple[Any, ...]:
    current = schedule.current
    words, upcoming = _when(schedule, now)
    state = "" if schedule.pause is None else f"paused{schedule.pause.terms}"
    if schedule.differs:
        state = f"{state}, workers differ".removeprefix(", ")
    return (
        schedule.identifier,
        words,
        None if current is None else current.zone or "UTC",
        None if current is None else current.task_identifier,
        upcoming,
        schedule.last_execution,
        len(schedule.workers),
        state,
    )


def _when(schedule: Schedule, now: datetime) -> tuple[str | None, datetime | None]:
    """The pattern in words, and the next run."""
    from ...cron.fields import FieldError, parse_pattern
    from ...cron.matcher import PatternMatcher
    from ...cron.words import describe_pattern
    from ...cron.zone import find_zone
    from ...errors import CrontabError

    current = schedule.current
    if current is None:
        return None, None
    if current.pattern is None:
        return "a function decides", None
    try:
        zone = None if current.zone is None else find_zone(current.zone)
        matcher = PatternMatcher(parse_pattern(current.pattern), zone)
    except (FieldError, CrontabError):
        return current.pattern, None
    runs = matcher.minutes_between(now + timedelta(seconds=1), now + HORIZON)
    return describe_pattern(current.pattern), next(islice(runs, 1), None)
