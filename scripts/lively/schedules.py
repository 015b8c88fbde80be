"""Recurring jobs of the shop, and what became of their last runs."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from graphile_worker import parse_crontab
from graphile_worker.results import ParsedCronItem

from .shop import TASKS

CRONTAB = """
0 3 * * * nightly_report ?fill=1d&id=nightly_report
*/10 * * * * prune_sessions ?id=prune_sessions
*/15 * * * * reconcile_stock ?id=reconcile_stock&queue=stock
0 9 * * 1-5 export_report ?id=weekday_export {kind:"orders"}
30 6 1 * * export_report ?id=monthly_export&max=3 {kind:"accounting"}
"""
RUNS = 20
FAILED_RUN = {"reconcile_stock": 4}
"""Which of the last runs failed, counted from the latest one."""
FIRST_JOB_ID = 48_100_000
KNOWN_SINCE = timedelta(days=120)
INSERT_KNOWN = (
    "insert into _private_known_crontabs (identifier, known_since, last_execution) values ($1, $2, $3)"
)
INSERT_RUNS = "insert into _private_py_schedule_runs (identifier, job_ids, due_at) values ($1, $2, $3)"


async def write_schedules(connection: Any, now: datetime, rng: random.Random) -> None:
    """Fill the tables of recurring jobs, and keep the jobs of their last runs."""
    ids = {row["identifier"]: row["id"] for row in await connection.fetch(
        "select id, identifier from _private_tasks")}  # fmt: skip
    job_id = FIRST_JOB_ID
    for item in parse_crontab(CRONTAB):
        due = list(islice(_due_before(item, now), RUNS))
        jobs = list(range(job_id + len(due), job_id, -1))
        job_id += len(due)
        await connection.execute(INSERT_KNOWN, item.identifier, now - KNOWN_SINCE, due[0])
        await connection.execute(INSERT_RUNS, item.identifier, jobs, due)
        failed = FAILED_RUN.get(item.identifier, -1)
        await connection.copy_records_to_table(
            "_private_py_history",
            records=[
                _end(item, ids[item.task_identifier], id, at, rng, now, is_failed=number == failed)
                for number, (id, at) in enumerate(zip(jobs, due, strict=True))
            ],
            columns=("job_id", "task_id", "state", "queue_name", "priority", "attempts", "max_attempts",
                     "created_at", "run_at", "started_at", "finished_at", "duration", "pool_id", "payload",
                     "error", "expires_on"),
        )  # fmt: skip


def _due_before(item: ParsedCronItem, now: datetime) -> Iterator[datetime]:
    """The minutes at which an item was due, the latest first."""
    minutes = item.match.minutes_between(now - KNOWN_SINCE, now - timedelta(minutes=1))
    return reversed(list(minutes))


def _end(
    item: ParsedCronItem,
    task_id: int,
    job_id: int,
    due: datetime,
    rng: random.Random,
    now: datetime,
    *,
    is_failed: bool,
) -> tuple[Any, ...]:
    task = next(task for task in TASKS if task.name == item.task_identifier)
    seconds = task.seconds * rng.lognormvariate(0, 0.2)
    added = due + timedelta(seconds=rng.uniform(0.02, 0.2))
    started = added + timedelta(seconds=rng.uniform(0.01, 0.5))
    finished = started + timedelta(seconds=seconds)
    return (
        job_id, task_id, "failed" if is_failed else "completed", task.queue, 0, 1, 25, added, due, started,
        finished, seconds, "worker-a1c4", json.dumps(item.payload or {}),
        "GatewayTimeout: no answer after 30 s" if is_failed else None, (now + timedelta(days=7)).date(),
    )  # fmt: skip
