"""`graphile-worker health`: whether the workers of this machine or container are well, from their files.

No database is asked: that is the worker's business, and a health check must be cheap.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import click

from ...errors import ConfigError
from ..support.client import load_settings
from ..support.health_file import Heartbeat, heartbeats
from ..support.output import print_json
from ..support.parameters import CONFIG_OPTION

LISTEN_INTERVAL = 45.0
"""LISTEN is tried every 30 seconds and may take 10 to answer; a younger answer cannot be asked for."""


@dataclass(frozen=True, slots=True)
class WorkerHealth:
    """One worker process: how old its signs of life are, and what is wrong with them, if anything."""

    pid: int | None
    turned: float | None
    listened: float | None
    problem: str | None


@click.command("health")
@CONFIG_OPTION
@click.option(
    "--file",
    "path",
    metavar="PATH",
    help="The worker's --health-file.  [default: the option health_file, GRAPHILE_WORKER_HEALTH_FILE]",
)
@click.option(
    "--within",
    type=click.FloatRange(min=1),
    default=60,
    show_default=True,
    metavar="SECONDS",
    help="How old the last sign of life may be.",
)
@click.option(
    "--no-listen", is_flag=True, help="LISTEN need not work, as behind a pooler in transaction mode."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
@click.pass_context
def health_command(
    ctx: click.Context, /, path: str | None, within: float, no_listen: bool, as_json: bool, **_: Any
) -> int:
    """Check that the worker is well: exit status 0 if so, else 1.

    Well means: its event loop turned and LISTEN answered within the time. Meant for the health check of a
    container, in which a worker runs with --health-file.

    \b
    graphile-worker --health-file /tmp/graphile-worker &
    graphile-worker health --file /tmp/graphile-worker --within 60
    """
    path = path or load_settings(ctx, {}).command_line.health_file
    if path is None:
        raise ConfigError(
            "no health file is set; start the worker with --health-file PATH (or set the environment "
            "variable GRAPHILE_WORKER_HEALTH_FILE for both), and give the same path here with --file"
        )
    workers = [
        judge(beat, time.monotonic(), within=within, must_listen=not no_listen) for beat in heartbeats(path)
    ]
    problems = [worker.problem for worker in workers if worker.problem is not None]
    if not workers:
        problems = [f"no worker is running with the health file {path}"]
    if as_json:
        print_json({"healthy": not problems, "problems": problems, "workers": [_shown(w) for w in workers]})
    else:
        for worker in workers:
            if worker.problem is None:
                click.echo(f"worker process {worker.pid} is well")
        for problem in problems:
            click.echo(problem, err=True)
    return 1 if problems else 0


def judge(beat: Heartbeat | None, now: float, *, within: float, must_listen: bool) -> WorkerHealth:
    """Whether the signs of life are young enough."""
    if beat is None:
        return WorkerHealth(None, None, None, "a worker process has not started yet")
    turned = now - beat.turned_at
    listened = now - beat.listened_at if beat.listened_at is not None else None
    problem: str | None = None
    if turned > within:
        problem = (
            f"worker process {beat.pid} hangs: its event loop has not turned for {turned:.0f} seconds; "
            "a task may be blocking it"
        )
    elif must_listen and not beat.stopping:
        if listened is None:
            problem = f"worker process {beat.pid} does not hear the database: LISTEN never answered"
        elif listened > max(within, LISTEN_INTERVAL):
            problem = (
                f"worker process {beat.pid} does not hear the database: LISTEN answered "
                f"{listened:.0f} seconds ago"
            )
    return WorkerHealth(beat.pid, turned, listened, problem)


def _shown(worker: WorkerHealth) -> dict[str, Any]:
    return {
        "pid": worker.pid,
        "healthy": worker.problem is None,
        "seconds_since_turn": _rounded(worker.turned),
        "seconds_since_listen": _rounded(worker.listened),
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
