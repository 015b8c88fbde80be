"""`graphile-worker health`: the state of the workers of this machine or container, from their health files.

It does not connect to the database: the workers do, and a health check must be cheap.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import click

from ...config import Settings
from ...errors import ConfigError
from ...process.health_file import HealthRecord, read_health_files
from ...values.text import duration
from ..support.command import Output, command

LISTEN_INTERVAL = 45.0
"""LISTEN is checked every 30 seconds and the check may take 10, so no shorter time can be required."""


@dataclass(frozen=True, slots=True)
class WorkerHealth:
    """One worker process: the ages of its records in seconds, and its problem, if any."""

    pid: int | None
    turned: float | None
    listened: float | None
    problem: str | None
    blocked_by: str | None = None


@command("health", flags={"path": "health_file"})
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
    help="Maximum age of the last update.",
)
@click.option(
    "--no-listen",
    is_flag=True,
    help="Do not require LISTEN, which fails behind a pooler in transaction mode.",
)
def health_command(settings: Settings, within: float, no_listen: bool) -> Output:
    """Check that workers are healthy: exit status 0 if so, else 1.

    A worker is healthy if its event loop ran and LISTEN worked within the given time. Use it as the health
    check of a container whose worker has a --health-file.

    \b
    graphile-worker --health-file /tmp/graphile-worker &
    graphile-worker health --file /tmp/graphile-worker --within 60
    """
    path = settings.command_line.health_file
    if path is None:
        raise ConfigError(
            "no health file is configured; start the worker with --health-file PATH and give the same path "
            "here with --file, or set the environment variable GRAPHILE_WORKER_HEALTH_FILE for both"
        )
    workers = [
        judge(record, time.monotonic(), within=within, must_listen=not no_listen)
        for record in read_health_files(path)
    ]
    problems = [worker.problem for worker in workers if worker.problem is not None]
    if not workers:
        problems = [f"no worker is running with the health file {path}"]
    return Output(
        lambda: {"healthy": not problems, "problems": problems, "workers": [_as_json(w) for w in workers]},
        lambda: _print(workers, problems),
        status=1 if problems else 0,
    )


def judge(record: HealthRecord | None, now: float, *, within: float, must_listen: bool) -> WorkerHealth:
    """Whether the record of a worker process is recent enough."""
    if record is None:
        return WorkerHealth(None, None, None, "a worker process has not started yet")
    turned = now - record.turned_at
    listened = now - record.listened_at if record.listened_at is not None else None
    problem: str | None = None
    if turned > within:
        problem = f"worker process {record.pid} hangs: {_blockage(record, now)}"
    elif record.unhealthy is not None:
        problem = f"worker process {record.pid} is shutting down: {record.unhealthy}"
    elif record.stalled_since is not None:
        seconds = now - record.stalled_since
        problem = f"worker process {record.pid}: no fetch has succeeded for {duration(seconds)}"
    elif must_listen and not record.stopping:
        if listened is None:
            problem = f"worker process {record.pid} gets no notifications: LISTEN has not worked yet"
        elif listened > max(within, LISTEN_INTERVAL):
            problem = (
                f"worker process {record.pid} gets no notifications: LISTEN last worked "
                f"{duration(listened)} ago"
            )
    return WorkerHealth(record.pid, turned, listened, problem, record.blocked_by)


def _blockage(record: HealthRecord, now: float) -> str:
    if record.blocked_by is None or record.blocked_since is None:
        turned = now - record.turned_at
        return f"its event loop has not run for {duration(turned)}; a task may be blocking it"
    seconds = now - record.blocked_since
    return f"{record.blocked_by} has blocked its event loop for {duration(seconds)}"


def _print(workers: list[WorkerHealth], problems: list[str]) -> None:
    for worker in workers:
        if worker.problem is None:
            click.echo(f"worker process {worker.pid} is healthy")
    for problem in problems:
        click.echo(problem, err=True)


def _as_json(worker: WorkerHealth) -> dict[str, Any]:
    return {
        "pid": worker.pid,
        "healthy": worker.problem is None,
        "seconds_since_turn": _rounded(worker.turned),
        "seconds_since_listen": _rounded(worker.listened),
        "blocked_by": worker.blocked_by,
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
