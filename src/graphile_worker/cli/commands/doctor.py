"""The command `doctor`: prints what was found, worst first, and what to do about it."""

from __future__ import annotations

import shutil
import textwrap
from datetime import datetime, timedelta
from typing import Any

import click

from ...diagnostics.finding import SEVERITIES, Finding, Severity, Thresholds
from ...json_shapes import findings_as_json
from ..support.client import load_settings, run_async, start_logging
from ..support.output import count, print_json
from ..support.parameters import CONFIG_OPTION, When, command_options

COLOURS: dict[Severity, str] = {"error": "red", "warning": "yellow", "info": "blue", "ok": "green"}
WIDTH = 100
INDENT = 9


@click.command("doctor")
@command_options
@CONFIG_OPTION
@click.option(
    "--lock-age", type=When(), default="1h", show_default=True, metavar="PERIOD", help="Locks older are old."
)
@click.option(
    "--transaction-age",
    type=When(),
    default="5m",
    show_default=True,
    metavar="PERIOD",
    help="Transactions open for longer are named.",
)
@click.option("--all", "scan", is_flag=True, help="Scan the jobs table for locks even if it is large.")
@click.pass_context
def doctor_command(
    ctx: click.Context,
    /,
    as_json: bool,
    scan: bool,
    lock_age: datetime | timedelta,
    transaction_age: datetime | timedelta,
    **_: Any,
) -> int:
    """Look at the connection, the schema, the jobs and the server, and say what to do.

    Changes nothing and is cheap, also with millions of jobs. The exit status is 1 if there is an error, that
    is something that keeps jobs from running.

    \b
    graphile-worker doctor
    graphile-worker doctor --json | jq '.findings[] | select(.severity == "error")'
    graphile-worker doctor --lock-age 10m
    """
    from ...diagnostics.examine import examine
    from ..support.hints import database_hint

    thresholds = Thresholds(
        lock_age=_seconds(lock_age, "--lock-age"),
        transaction_age=_seconds(transaction_age, "--transaction-age"),
    )
    settings = load_settings(ctx, {})
    start_logging(settings, quiet=True)
    found = run_async(examine(settings, thresholds=thresholds, scan=scan, no_database_hint=database_hint))
    found.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    if as_json:
        print_json(findings_as_json(found))
    else:
        _print(found)
    return 1 if any(finding.severity == "error" for finding in found) else 0


def _seconds(value: datetime | timedelta, option: str) -> float:
    if isinstance(value, datetime):
        raise click.BadParameter("a period such as 10m or 2h is needed, not a time", param_hint=option)
    return value.total_seconds()


def _print(found: list[Finding]) -> None:
    width = min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)
    for finding in found:
        mark = click.style(f"{finding.severity:<{INDENT - 2}}", fg=COLOURS[finding.severity])
        _paragraph(f"{finding.check}: {finding.summary}", width, first=f"{mark}  ")
        if finding.severity != "ok":
            _paragraph(finding.meaning, width)
            _paragraph(f"→ {finding.advice}", width)
            click.echo()
    numbers = {name: sum(finding.severity == name for finding in found) for name in ("error", "warning")}
    said = [count(number, name) for name, number in numbers.items() if number]
    click.echo(f"Found {' and '.join(said)}." if said else "All is well.")


def _paragraph(text: str, width: int, *, first: str = "") -> None:
    """Wrapped and indented, so that commands can still be read; long words are not broken."""
    lines = textwrap.wrap(
        text, width - INDENT, break_long_words=False, break_on_hyphens=False, replace_whitespace=True
    )
    for number, line in enumerate(lines):
        click.echo((first if number == 0 and first else " " * INDENT) + line)
