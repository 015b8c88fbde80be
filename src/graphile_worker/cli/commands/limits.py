"""`graphile-worker limits` and `width`: how many jobs may run at once.

`graphile-worker limits`: show limits, and change their bounds while workers run.

`graphile-worker width`: how many jobs of a named queue may run at once.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from ...diagnostics.json_shapes import limit_as_json
from ...values.concurrency import MOST
from ...values.text import count, duration, parse_time_phrase
from ..support.command import Output, client_command
from ..support.output import cell, print_table
from ..support.parameters import _ParamType

if TYPE_CHECKING:
    from ...client import WorkerUtils
    from ...database.statements.limits import LimitSummary


ACTIONS = ("list", "set", "reset")
COLUMNS = ("limit", "concurrency", "rate", "burst", "running", "set by hand", "tasks")


class StartRate(_ParamType):
    """A number of starts in a period: `500/1m`, `10/s`."""

    name = "rate"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, timedelta]:
        if isinstance(value, tuple):
            return value
        count, sign, period = str(value).replace(" ", "").lower().partition("/")
        try:
            seconds = parse_time_phrase(f"1{period}" if period in ("s", "m", "h", "d", "w") else period)
            if not sign or not 0 < int(count) <= MOST or seconds <= 0:
                raise ValueError(value)
        except ValueError:
            self.fail(f"{value!r} is not a rate such as 500/1m or 10/s", param, ctx)
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
@click.option("--rate", type=StartRate(), metavar="N/PERIOD", help="Jobs that may start: 500/1m, 10/s.")
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
        found = [await utils.reset_limit(name)]
    else:
        found = await utils.list_limits()
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


def _check_width(queue: str, width: int | None, reset: bool) -> None:
    if (width is None) is not reset:
        raise click.UsageError("Give the WIDTH, or --reset.")


@client_command("width", check=_check_width, audit="set_queue_width")
@click.argument("queue")
@click.argument("width", type=int, required=False)
@click.option("--reset", is_flag=True, help="Forget the width that was set; that of the task counts again.")
async def width_command(utils: WorkerUtils, queue: str, width: int | None, reset: bool) -> Output:
    """Let up to WIDTH jobs of the named queue QUEUE run at once.

    \b
    graphile-worker width tenant:7 10
    graphile-worker width tenant:7 --reset

    It takes effect at once and survives restarts. Jobs that run when a queue gets narrower go on.
    """
    await utils.set_queue_width(queue, width)
    text = (
        f"The width of {cell(queue)} is that of its tasks again."
        if width is None
        else f"Up to {count(width, 'job')} of {cell(queue)} may run at once."
    )
    return Output(lambda: {"queue_name": queue, "width": width}, lambda: click.echo(text))
