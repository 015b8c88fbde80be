"""Judges the jobs: locks, dead worker pools, stuck queues, failures, and jobs that nobody takes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from ..schema_name import SchemaName
from .facts import Failures, KnownWorkers, LockHolder, LostQueue, StuckQueue, WaitingJob
from .finding import Finding, Thresholds, age, some, well


def check_locks(
    holders: Sequence[LockHolder], workers: KnownWorkers | None, thresholds: Thresholds
) -> Iterator[Finding]:
    """Jobs held by pools that are dead, or for very long."""
    lost = set(workers.lost) if workers is not None else set()
    dead = [holder for holder in holders if holder.locked_by in lost]
    for holder in dead:
        yield Finding(
            "locks", "warning", f"the worker pool {holder.locked_by} is out of reach and holds "
            f"{_jobs(holder.jobs)}",
            "It died, or lost its connection. Another worker gives its jobs back soon, if one is running.",
            "Start a worker, or run `graphile-worker sweep`.",
        )  # fmt: skip
    old = [holder for holder in holders if holder.old_jobs and holder.locked_by not in lost]
    for holder in old:
        pool = holder.locked_by or ""
        yield Finding(
            "locks", "warning",
            f"{pool} holds {_jobs(holder.old_jobs)} for more than {age(thresholds.lock_age)}, the oldest for "
            f"{age(holder.age)}",
            "Either the tasks run that long, or the worker died without this package knowing of it, as "
            "workers of Node and Rust do. Locks older than four hours are cleared by themselves.",
            f"Look at them: graphile-worker list --locked-by {shlex.quote(pool)}. If that worker is dead for "
            f"sure: graphile-worker force-unlock {shlex.quote(pool)}",
        )  # fmt: skip
    if not dead and not old:
        jobs = sum(holder.jobs for holder in holders)
        yield well("locks", f"{_jobs(jobs)} locked, none of them for long")


def check_queues(queues: Sequence[StuckQueue]) -> Iterator[Finding]:
    """Queues that nobody will free."""
    if not queues:
        yield well("queues", "no named queue is stuck")
        return
    pools = sorted({queue.locked_by or "" for queue in queues})
    yield Finding(
        "queues", "error", f"named queues are stuck: {some([queue.queue_name for queue in queues])}",
        f"They are locked, the first for {age(queues[0].age)}, but none of their jobs is. Nothing of them "
        "runs until the lock is four hours old.",
        f"graphile-worker force-unlock {' '.join(shlex.quote(pool) for pool in pools)} — if these workers "
        "are alive, stop them first.",
    )  # fmt: skip


def check_lost_queues(queues: Sequence[LostQueue], schema: SchemaName) -> Iterator[Finding]:
    """Jobs of queues that have no row."""
    if not queues:
        return
    first = queues[0]
    jobs = some([f"{queue.job_id} ({queue.task_identifier})" for queue in queues])
    table = f"{schema.quoted}._private_job_queues"
    yield Finding(
        "queues", "error", f"jobs wait for named queues whose rows are gone; the next of each: {jobs}",
        "A worker locks the row of a queue before it takes a job of it, so these jobs never run. The rows "
        "were deleted by hand, or by a clean-up of another runtime while the jobs were added.",
        "Give each queue a row again: "  # noqa: S608 — text for people
        f"insert into {table} (id, queue_name) overriding system value values ({first.job_queue_id}, "
        f"'restored {first.job_queue_id}');"
        + (" and so on for " + some([str(queue.job_queue_id) for queue in queues[1:]]) if queues[1:] else ""),
    )  # fmt: skip


def check_failures(failures: Failures) -> Iterator[Finding]:
    """Jobs that failed for good."""
    if not failures.jobs:
        yield well("failures", "no job has failed for good")
        return
    about = "about " if failures.is_estimate else ""
    first = failures.tasks[0]
    names = some([f"{task.task_identifier} ({about}{task.jobs:,})" for task in failures.tasks])
    error = (
        f" The last error of {first.task_identifier}: {_one_line(first.last_error)}"
        if first.last_error
        else ""
    )
    yield Finding(
        "failures", "warning", f"{about}{_jobs(failures.jobs)} failed for good: {names}",
        f"They have no attempts left and stay until somebody decides about them.{error}",
        "See them: graphile-worker list --state failed. Try them again: graphile-worker reschedule "
        "--attempts 0 --run-at now ID... Delete them all: graphile-worker cleanup DELETE_PERMAFAILED_JOBS",
    )  # fmt: skip


def check_waiting(
    waiting: WaitingJob | None, workers: KnownWorkers | None, thresholds: Thresholds
) -> Iterator[Finding]:
    """Jobs that are ready and that nobody takes."""
    if waiting is None or waiting.age < thresholds.waiting_age:
        yield well("waiting", "no job has been waiting for long")
        return
    alive = workers.alive if workers is not None else None
    reason = "No worker of this package is running. " if alive == 0 else ""
    yield Finding(
        "waiting", "warning", f"a job of {waiting.task_identifier} has been ready for {age(waiting.age)}",
        f"{reason}Nobody takes it: no worker is running, none has this task, its flags are forbidden, or the "
        "workers cannot keep up.",
        "Start a worker that has the task, raise --jobs or --processes, or see `graphile-worker stats`.",
    )  # fmt: skip


def _jobs(number: int) -> str:
    return f"{number:,} job" if number == 1 else f"{number:,} jobs"


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 120 else line[:119] + "…"
