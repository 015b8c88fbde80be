"""`graphile-worker doctor` and `health`: what is wrong, and whether a worker is well.

`doctor` prints findings, worst first, with advice. `health` asks the probes of a worker on this machine,
without the database.
"""

from __future__ import annotations

import http.client
import shutil
import textwrap
from datetime import datetime, timedelta
from typing import Any

import click
import msgspec

from ...config import Settings
from ...diagnostics.finding import SEVERITIES, Finding, Severity, Thresholds
from ...diagnostics.json_shapes import findings_as_json
from ...errors import ConfigError
from ...values.text import count
from ..support.client import run_async, with_database
from ..support.command import Output, command
from ..support.parameters import WHEN

COLOURS: dict[Severity, str] = {"error": "red", "warning": "yellow", "info": "blue", "ok": "green"}
WIDTH = 100
INDENT = 9


@command("doctor", database=True)
@click.option(
    "--lock-age",
    type=WHEN,
    default="1h",
    show_default=True,
    metavar="PERIOD",
    help="Report locks older than this.",
)
@click.option(
    "--transaction-age",
    type=WHEN,
    default="5m",
    show_default=True,
    metavar="PERIOD",
    help="Report transactions open longer than this.",
)
@click.option("--all", "scan", is_flag=True, help="Scan the jobs table for locks even if it is large.")
def doctor_command(
    settings: Settings, scan: bool, lock_age: datetime | timedelta, transaction_age: datetime | timedelta
) -> Output:
    """Check the connection, the schema, the jobs and the server, and give advice.

    It changes nothing and is cheap even with millions of jobs. The exit status is 1 if it finds an error:
    something that keeps jobs from running.

    \b
    graphile-worker doctor
    graphile-worker doctor --json | jq '.findings[] | select(.severity == "error")'
    graphile-worker doctor --lock-age 10m
    """
    from ...diagnostics.examine import examine
    from ...runner.process.error_report import database_hint

    thresholds = Thresholds(
        lock_age=_seconds(lock_age, "--lock-age"),
        transaction_age=_seconds(transaction_age, "--transaction-age"),
    )
    settings = with_database(settings)
    found = run_async(examine(settings, thresholds=thresholds, scan=scan, no_database_hint=database_hint))
    found.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    has_error = any(finding.severity == "error" for finding in found)
    return Output(lambda: findings_as_json(found), lambda: _print(found), status=1 if has_error else 0)


def _seconds(value: datetime | timedelta, option: str) -> float:
    if isinstance(value, datetime):
        raise click.BadParameter("expected a period such as 10m or 2h, not a time", param_hint=option)
    return value.total_seconds()


def _print(found: list[Finding]) -> None:
    width = min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)
    for finding in found:
        label = click.style(f"{finding.severity:<{INDENT - 2}}", fg=COLOURS[finding.severity])
        _paragraph(f"{finding.check}: {finding.summary}", width, first=f"{label}  ")
        if finding.severity != "ok":
            _paragraph(finding.meaning, width)
            _paragraph(f"→ {finding.advice}", width)
            _paragraph(f"More in the documentation: {finding.page}", width)
            click.echo()
    numbers = {name: sum(finding.severity == name for finding in found) for name in ("error", "warning")}
    parts = [count(number, name) for name, number in numbers.items() if number]
    click.echo(f"Found {' and '.join(parts)}." if parts else "No problems found.")


def _paragraph(text: str, width: int, *, first: str = "") -> None:
    """Print text wrapped and indented. Long words are not broken, so that commands can be copied."""
    lines = textwrap.wrap(
        text, width - INDENT, break_long_words=False, break_on_hyphens=False, replace_whitespace=True
    )
    for number, line in enumerate(lines):
        click.echo((first if number == 0 and first else " " * INDENT) + line)


HERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104


@command("health", flags=("http_port", "http_address"))
@click.option("--live", is_flag=True, help="Ask /livez: whether to restart it.  [default: ask /readyz]")
@click.option("--http-port", type=click.IntRange(1, 65535), metavar="PORT", help="The worker's --http-port.")
@click.option("--http-address", metavar="ADDRESS", help="The worker's --http-address.")
@click.option(
    "--within",
    type=click.FloatRange(min=0, min_open=True),
    default=5,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for an answer.",
)
def health_command(settings: Settings, live: bool, within: float) -> Output:
    """Check that a worker with --http-port is healthy: exit status 0 if so, else 1.

    It asks the worker's /readyz: whether its event loop runs and jobs can be fetched. With --live it asks
    /livez, which does not depend on the database. Use it as the health check of a container.

    \b
    graphile-worker --http-port 8080 &
    graphile-worker health --http-port 8080
    """
    port = settings.process.http_port
    if not port:
        raise ConfigError(
            "no port is configured; start the worker with --http-port PORT and give the same port here with "
            "--http-port, or set http_port or the environment variable GRAPHILE_WORKER_HTTP_PORT for both"
        )
    address = HERE.get(settings.process.http_address, settings.process.http_address)
    found = _ask(address, port, "/livez" if live else "/readyz", within)
    workers, problems = found.get("workers", []), found["problems"]
    healthy = [f"worker process {worker['pid']} is healthy" for worker in workers if worker["healthy"]]
    return Output(
        lambda: {"healthy": not problems, "problems": problems, "workers": workers},
        lambda: click.echo("\n".join(healthy), nl=bool(healthy)),
        notes=problems,
        status=1 if problems else 0,
    )


def _ask(address: str, port: int, path: str, within: float) -> dict[str, Any]:
    where = f"{address} on port {port}"
    connection = http.client.HTTPConnection(address, port, timeout=within)
    try:
        connection.request("GET", f"{path}?verbose")
        found: dict[str, Any] = msgspec.json.decode(connection.getresponse().read())
        return found if "problems" in found else {"problems": [f"what answers at {where} is no worker"]}
    except TimeoutError:
        return {"problems": [f"the worker at {where} does not answer; its event loop may be blocked"]}
    except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
        return {"problems": [f"no worker answers at {where}: {error}"]}
    finally:
        connection.close()
