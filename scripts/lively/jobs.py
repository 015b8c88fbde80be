"""Jobs as they are now: waiting, retried, permanently failed; and the ends and errors of the past."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from .errors import ERRORS, ShopError
from .shop import NEW_VERSION, OLD_VERSION, TASKS, payload_of

ENDS = 4000
ERRORS_KEPT = 20
"""Errors of one kind that are kept with their traceback."""
MAX_ATTEMPTS = 25
QUEUES = ("invoices", "crm", "stock", "imports", *(f"customer-{number}" for number in range(100, 124)))

INSERT_JOBS = """
insert into _private_jobs
  (task_id, job_queue_id, payload, priority, run_at, attempts, max_attempts, last_error, created_at,
   updated_at, key, flags)
select
  task.id, queue.id, job.payload::json, job.priority, job.run_at, job.attempts, job.max_attempts,
  job.last_error, job.created_at, coalesce(job.failed_at, now()), job.key,
  (select jsonb_object_agg(flag, true) from unnest(string_to_array(job.flag, ',')) flag)
from unnest(
  $1::text[], $2::text[], $3::text[], $4::int[], $5::timestamptz[], $6::int[], $7::int[], $8::text[],
  $9::timestamptz[], $10::timestamptz[], $11::text[], $12::text[]
) as job (
  task, queue, payload, priority, run_at, attempts, max_attempts, last_error, created_at, failed_at, key, flag
)
join _private_tasks task on task.identifier = job.task
left join _private_job_queues queue on queue.queue_name = job.queue
order by job.created_at
returning
  id, task_id, payload, attempts, max_attempts, last_error, split_part(last_error, chr(10), 1) as error,
  created_at, updated_at
"""
INSERT_GROUP = """
insert into _private_py_error_groups
  (fingerprint, task_id, error_type, message, place, first_at, last_at, errors, permanent, last_job_id,
   first_version, last_version)
select $1, id, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12 from _private_tasks where identifier = $2
"""


@dataclass(kw_only=True)
class NewJob:
    """One row to insert."""

    task: str
    created_at: datetime
    run_at: datetime
    payload: dict[str, Any]
    queue: str | None = None
    priority: int = 0
    attempts: int = 0
    max_attempts: int = MAX_ATTEMPTS
    last_error: str | None = None
    failed_at: datetime | None = None
    """The time of its permanent failure."""
    key: str | None = None
    flag: str | None = None

    def values(self) -> tuple[Any, ...]:
        return (
            self.task, self.queue, json.dumps(self.payload), self.priority, self.run_at, self.attempts,
            self.max_attempts, self.last_error, self.created_at, self.failed_at, self.key, self.flag,
        )  # fmt: skip


async def write_jobs(connection: Any, now: datetime, rng: random.Random) -> None:
    """Fill the jobs table and what is kept of failed attempts and of jobs that ended."""
    await _name_tasks(connection)
    added = [*_waiting(now, rng), *_failed(now, rng)]
    rows = await connection.fetch(INSERT_JOBS, *map(list, zip(*(job.values() for job in added), strict=True)))
    days = sorted({(now + timedelta(days=ahead)).date() for ahead in range(-1, 16)})
    for table in ("_private_py_errors", "_private_py_history"):
        for day in days:
            await connection.execute(f"select _private_py_add_partition('{table}', $1)", day)
    for error in ERRORS:
        await _keep_error(connection, now, error, rows, rng)
    await _keep_finished_jobs(connection, now, rng, rows)


async def _name_tasks(connection: Any) -> None:
    names = [task.name for task in TASKS]
    await connection.execute(
        "insert into _private_tasks (identifier) select unnest($1::text[]) on conflict do nothing",
        names,
    )
    await connection.execute(
        "insert into _private_py_task_names (id, identifier) "
        "select id, identifier from _private_tasks on conflict do nothing"
    )
    await connection.execute(
        "insert into _private_job_queues (queue_name) select unnest($1::text[]) on conflict do nothing",
        list(QUEUES),
    )
    # A job that ended has an id below those of all jobs that are left.
    await connection.execute("alter sequence jobs_id_seq1 restart with 48213000")


def _waiting(now: datetime, rng: random.Random) -> Iterator[NewJob]:
    for number in range(90):
        task = rng.choice(TASKS[:8])
        created = now - timedelta(seconds=rng.uniform(1, 240))
        yield NewJob(
            task=task.name, created_at=created, run_at=created, payload=payload_of(task.name, rng),
            queue=task.queue or (rng.choice(QUEUES[4:]) if number % 9 == 0 else None),
            priority=rng.choice((0, 0, 0, 0, -5, 10)), flag="slow_storage" if number % 31 == 5 else None,
        )  # fmt: skip
    for number in range(420):
        task = rng.choice(TASKS[:5])
        created = now - timedelta(minutes=rng.uniform(1, 2000))
        key = f"reminder:{number}" if task.name == "send_email" else None
        yield NewJob(
            task=task.name, created_at=created, run_at=now + timedelta(minutes=rng.uniform(2, 2800)),
            payload=payload_of(task.name, rng), key=key,
            flag="bulk,eu" if number % 17 == 0 else None,
        )  # fmt: skip


def _failed(now: datetime, rng: random.Random) -> Iterator[NewJob]:
    for error in ERRORS:
        for number in range(error.jobs):
            is_permanent = number < error.permanent
            most = 5 if error.task == "send_email" else MAX_ATTEMPTS
            attempts = most if is_permanent else rng.randint(1, min(4, most - 1))
            age = rng.uniform(0.5, error.since)
            due = rng.uniform(-age / 4, 0) if is_permanent else rng.uniform(0.2, 9)
            created = now - timedelta(minutes=age)
            yield NewJob(
                task=error.task, created_at=created, run_at=now + timedelta(minutes=due),
                failed_at=_failed_at(created, most, most, now) if is_permanent else None,
                payload=payload_of(error.task, rng), attempts=attempts, max_attempts=most,
                queue=next((task.queue for task in TASKS if task.name == error.task), None),
                last_error=error.text, key=f"{error.task}:{8000 + number}" if number % 5 == 2 else None,
            )  # fmt: skip


async def _keep_error(
    connection: Any, now: datetime, error: ShopError, rows: list[Any], rng: random.Random
) -> None:
    """The group of an error, and the failed attempts of its latest jobs."""
    headline = f"{error.error_type}: {error.message}"
    jobs = [row for row in rows if row["error"] == headline]
    version = error.version or OLD_VERSION
    await connection.execute(
        INSERT_GROUP, error.fingerprint, error.task, error.error_type, error.message,
        error.place, now - timedelta(minutes=error.since), now - timedelta(seconds=rng.uniform(2, 90)),
        error.attempts, error.permanent, jobs[-1]["id"], version, NEW_VERSION,
    )  # fmt: skip
    records = [
        (
            job["id"], attempt, job["task_id"],
            _failed_at(job["created_at"], attempt, job["attempts"], now), _seconds(job, now, rng),
            attempt == job["max_attempts"], error.error_type, error.message, error.traceback,
            error.fingerprint, "worker-b7f2", version, (now + timedelta(days=14)).date(),
        )
        for job in jobs[-ERRORS_KEPT:] + jobs[:ERRORS_KEPT]
        for attempt in range(1, min(job["attempts"], 5) + 1)
    ]  # fmt: skip
    await connection.copy_records_to_table(
        "_private_py_errors", records=records,
        columns=("job_id", "attempt", "task_id", "failed_at", "duration", "is_final", "error_type", "message",
                 "traceback", "fingerprint", "pool_id", "version", "expires_on"),
    )  # fmt: skip


def _failed_at(created: datetime, attempt: int, attempts: int, now: datetime) -> datetime:
    """Attempts spread between the time a job was added and now."""
    return created + (now - created) * (attempt / (attempts + 1))


def _seconds(job: Any, now: datetime, rng: random.Random) -> float:
    """How long an attempt took: shorter than the time between two of them."""
    between: float = (now - job["created_at"]).total_seconds() / (job["attempts"] + 1)
    return min(30.0, between * rng.uniform(0.1, 0.5))


async def _keep_finished_jobs(connection: Any, now: datetime, rng: random.Random, rows: list[Any]) -> None:
    """Jobs that are gone, newest last, and those of the rows that have failed permanently."""
    first_id = min(row["id"] for row in rows)
    ids = {row["identifier"]: row["id"] for row in await connection.fetch(
        "select id, identifier from _private_tasks")}  # fmt: skip
    expires: date = (now + timedelta(days=7)).date()
    records: list[tuple[Any, ...]] = []
    for job in rows:
        if job["attempts"] == job["max_attempts"]:
            seconds, finished = _seconds(job, now, rng), job["updated_at"]
            records.append((
                job["id"], job["task_id"], "failed", None, None, 0, job["attempts"], job["max_attempts"],
                job["created_at"], job["created_at"], finished - timedelta(seconds=seconds), finished,
                seconds, "worker-b7f2", None, job["payload"], None, job["last_error"], expires,
            ))  # fmt: skip
    for number in range(ENDS):
        task = rng.choices(TASKS, [task.per_minute for task in TASKS])[0]
        finished = now - timedelta(seconds=(ENDS - number) * 11)
        seconds = task.seconds * rng.lognormvariate(0, 0.5)
        state = "completed" if rng.random() > 0.01 else rng.choice(("cancelled", "expired", "failed"))
        started = finished - timedelta(seconds=seconds)
        added = started - timedelta(seconds=rng.uniform(0.01, 2))
        records.append((
            first_id - ENDS + number, ids[task.name], state, task.queue, None, 0, 1, MAX_ATTEMPTS, added,
            added, started, finished, seconds, "worker-a1c4", None, json.dumps(payload_of(task.name, rng)),
            json.dumps({"ok": True}) if state == "completed" else None,
            "GatewayTimeout: no answer after 30 s" if state == "failed" else None, expires,
        ))  # fmt: skip
    await connection.copy_records_to_table(
        "_private_py_history", records=records,
        columns=("job_id", "task_id", "state", "queue_name", "job_key", "priority", "attempts",
                 "max_attempts", "created_at", "run_at", "started_at", "finished_at", "duration", "pool_id",
                 "flags", "payload", "result", "error", "expires_on"),
    )  # fmt: skip
