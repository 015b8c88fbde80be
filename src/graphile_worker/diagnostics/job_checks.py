"""Checks of jobs, of the workers that run them, and of their table.

Locks, stuck queues and failures; blocked event loops and fetches; dead rows, bloat, and what holds back
vacuum.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence

from ..recovery.registry.workers import WorkerSummary
from ..values.schema_name import SchemaName
from ..values.text import count, duration
from .facts import (
    FailureFacts,
    LockHolder,
    Locks,
    LostQueue,
    OldTransaction,
    SilentJobs,
    StuckQueue,
    TableFacts,
)
from .finding import Finding, Thresholds, size, some, well


def check_locks(locks: Locks, thresholds: Thresholds) -> Iterator[Finding]:
    """Jobs that dead workers have locked, or that are locked for very long."""
    unreachable = [holder for holder in locks.holders if holder.is_alive is False]
    for holder in unreachable:
        yield Finding(
            "locks", "warning", f"worker pool {holder.locked_by} is unreachable and has "
            f"{_jobs(holder.jobs)}{_silent(locks, holder)}",
            "It died or lost its connection. If another worker is running, it recovers the jobs soon.",
            "Start a worker, or run `graphile-worker sweep`.",
        )  # fmt: skip
    old = [
        (holder.locked_by or "", holder.jobs, holder.age)
        for holder in locks.holders
        if holder.is_alive is not False and holder.age is not None and holder.age > thresholds.lock_age
    ]
    for pool, jobs, oldest in old:
        yield Finding(
            "locks", "warning",
            f"{pool} has {_jobs(jobs)} locked, the oldest for {duration(oldest, units=1)}",
            "Either the task runs that long, or the worker is dead and belongs to another runtime, which "
            "sends no heartbeats. Locks older than four hours are cleared automatically.",
            f"List the jobs: graphile-worker list --locked-by {shlex.quote(pool)}. If you are sure that the "
            f"worker is dead: graphile-worker force-unlock {shlex.quote(pool)}",
        )  # fmt: skip
    if not unreachable and not old:
        locked = sum(holder.jobs or 0 for holder in locks.holders)
        yield well("locks", f"{_jobs(locked)} locked, none of them for long")


def not_scanned(pages: int) -> Iterator[Finding]:
    """What was not checked in a large table."""
    yield Finding(
        "queues", "info", "not checked: stuck queues, and locks of other runtimes",
        f"Finding them takes a scan of the whole jobs table, which has {pages:,} pages.",
        "Run `graphile-worker doctor --all`.",
    )  # fmt: skip


def check_queues(queues: Sequence[StuckQueue]) -> Iterator[Finding]:
    """Queues that stay locked although none of their jobs is."""
    if not queues:
        yield well("queues", "no named queue is stuck")
        return
    pools = sorted({queue.locked_by or "" for queue in queues})
    yield Finding(
        "queues", "error", f"named queues are stuck: {some([queue.queue_name for queue in queues])}",
        f"They are locked, the first for {duration(queues[0].age, units=1)}, but none of their jobs is. "
        "Their jobs do not run until the lock is four hours old.",
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
        "queues", "error", f"the rows of queues with waiting jobs are missing; next job of each: {jobs}",
        "A worker locks the row of a queue before it takes a job from it, so these jobs never run. The rows "
        "were deleted by hand, or by another runtime's clean-up while jobs were being added.",
        "Restore the row of each queue: "  # noqa: S608 — text for people
        f"insert into {table} (id, queue_name) overriding system value values ({first.job_queue_id}, "
        f"'restored {first.job_queue_id}');"
        + (" and so on for " + some([str(queue.job_queue_id) for queue in queues[1:]]) if queues[1:] else ""),
    )  # fmt: skip


def check_failures(failures: FailureFacts) -> Iterator[Finding]:
    if not failures.jobs:
        yield well("failures", "no job has failed permanently")
        return
    about = "about " if failures.is_estimate else ""
    first = failures.tasks[0]
    names = some([f"{task.task_identifier} ({about}{task.jobs:,})" for task in failures.tasks])
    error = (
        f" Last error of {first.task_identifier}: {_message(first.last_error)}" if first.last_error else ""
    )
    yield Finding(
        "failures", "warning", f"{about}{_jobs(failures.jobs)} failed permanently: {names}",
        f"They have no attempts left and stay until they are retried or deleted.{error}",
        "List them: `graphile-worker list --state failed`. Run them again: `graphile-worker retry --all`. "
        "Delete them: `graphile-worker cleanup DELETE_PERMAFAILED_JOBS`.",
    )  # fmt: skip


def _silent(locks: Locks, holder: LockHolder) -> str:
    silent = locks.silent.get(holder.locked_by or "")
    if silent is None:
        return ""
    return f"{'; it last reported running' if silent.is_reported else ''}: {some(silent.jobs)}"


def _jobs(number: int | None) -> str:
    if number is None:
        return "an unknown number of jobs"
    return f"{number:,} job" if number == 1 else f"{number:,} jobs"


def _message(error: str) -> str:
    """An error in one line, without its traceback."""
    line = " ".join(error.partition("\nTraceback (most recent call last):")[0].split())
    return line if len(line) <= 120 else line[:119] + "…"


BLOCKED = "Nothing else runs in that process: no other job, no timer, no signal handler."
ADVICE = (
    "Make the task a plain `def`, which runs in a thread, or let it await; the worker's log has its stack. "
    "To end it now, stop the process"
)


def check_workers(locks: Locks) -> Iterator[Finding]:
    """Pools whose event loop is blocked, that are silent although they are alive, or that fetch nothing."""
    if locks.workers is None:
        return
    alive = [worker for worker in locks.workers if worker.is_alive]
    others = _others([worker for worker in locks.workers if not worker.is_registered])
    were_some = any(worker.is_registered for worker in locks.workers)
    found = [finding for worker in alive for finding in _hindered(worker, locks)]
    if found:
        yield from found
    elif alive:
        verb = "is" if len(alive) == 1 else "are"
        yield well("workers", f"{count(len(alive), 'worker pool')} {verb} running{others}")
    elif were_some or (locks.last_work is not None and not others):
        last = f"; a job last ran {duration(locks.last_work, units=1)} ago" if locks.last_work else ""
        known = f", and {count(locks.schedules, 'recurring job')} known" if locks.schedules else ""
        yield Finding(
            "workers", "warning", f"no Python worker is running{others}{known}{last}",
            "There were some. Jobs wait and recurring jobs are not added, unless Node or Rust workers run. "
            "Those cannot be seen while they have no job.",
            "Start one: graphile-worker",
        )  # fmt: skip
    else:
        yield well("workers", f"no Python worker has run yet{others}")


def _others(workers: Sequence[WorkerSummary]) -> str:
    """Workers that are not registered here, by runtime."""
    runtimes = Counter(worker.runtime for worker in workers)
    silent = sum(worker.silent_for is not None for worker in workers)
    listed = ", ".join(f"{count(number, f'{name} worker')}" for name, number in sorted(runtimes.items()))
    missing = f", of which {silent} missed heartbeats" if silent else ""
    return f"; besides {listed}{missing}" if listed else ""


def _hindered(worker: WorkerSummary, locks: Locks) -> Iterator[Finding]:
    process = f"{worker.pid} on {worker.host}."
    if worker.blocked is not None:
        yield Finding(
            "workers", "warning", f"worker pool {worker.id}: {worker.blocked.culprit} has blocked its event "
            f"loop for {duration(worker.blocked.seconds, units=1)}",
            BLOCKED, f"{ADVICE} {process}",
        )  # fmt: skip
    elif worker.silent_for is not None:
        last = _last(locks.silent[worker.id]) if worker.id in locks.silent else ""
        yield Finding(
            "workers", "warning", f"worker pool {worker.id} missed its heartbeats for "
            f"{duration(worker.silent_for, units=1)}{last}",
            "Its connection is open, so it is alive. A task blocks its event loop, or its machine is "
            "overloaded.",
            f"See its log. {ADVICE} {process}",
        )  # fmt: skip
    elif worker.stalled_for is not None:
        yield Finding(
            "workers", "warning", f"worker pool {worker.id} has free slots, but no fetch has succeeded for "
            f"{duration(worker.stalled_for, units=1)}",
            "It is alive but does not take ready jobs.",
            "Its log says why fetches fail, for example because a function that returns flags raises. If it "
            f"says nothing, restart the process {process}",
        )  # fmt: skip


def _last(silent: SilentJobs) -> str:
    verb = "last reported running" if silent.is_reported else "has locked"
    return f"; it {verb}: {some(silent.jobs)}"


USUAL_ROW = 200  # bytes, where there are no statistics
ROW_OVERHEAD = 32
FILLED = 0.2
"""A table that is filled to less than this share is bloated."""
ADVISED = "autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000"


def check_table(table: TableFacts, schema: SchemaName, thresholds: Thresholds) -> Iterator[Finding]:
    name = f"{schema.quoted}._private_jobs"
    found = [*_dead_rows(table, name, thresholds), *_bloat(table, name, thresholds)]
    found += _settings(table, name, thresholds)
    ago = table.vacuumed_ago
    last = "never vacuumed" if ago is None else f"vacuumed {duration(ago, units=1)} ago"
    jobs = count(table.live, "job")
    yield from found or [well("table", f"about {jobs} in {size(table.table_bytes)}, {last}")]


def _dead_rows(table: TableFacts, name: str, thresholds: Thresholds) -> Iterator[Finding]:
    if table.dead < thresholds.dead_rows or table.dead < table.live / 2:
        return
    last = (
        "has never been vacuumed"
        if table.vacuumed_ago is None
        else f"was vacuumed {duration(table.vacuumed_ago, units=1)} ago"
    )
    yield Finding(
        "table", "warning", f"the jobs table has {table.dead:,} dead and {table.live:,} live rows",
        f"It {last}. Every fetch reads past dead rows and gets slower.",
        f"vacuum (analyze) {name}; if the dead rows stay, see the findings about transactions.",
    )  # fmt: skip


def _bloat(table: TableFacts, name: str, thresholds: Thresholds) -> Iterator[Finding]:
    needed = (table.live + table.dead) * ((table.row_bytes or USUAL_ROW) + ROW_OVERHEAD)
    if table.table_bytes >= thresholds.bloat_bytes and needed < table.table_bytes * FILLED:
        yield Finding(
            "table", "warning",
            f"the jobs table takes up {size(table.table_bytes)}, but uses only about {size(needed)} "
            f"(indexes: {size(table.index_bytes)})",
            "It was larger once. New jobs reuse the empty space, but a scan of the table reads all of it.",
            f"Stop the workers and run: vacuum full {name}; or use pg_repack.",
        )  # fmt: skip


def _settings(table: TableFacts, name: str, thresholds: Thresholds) -> Iterator[Finding]:
    if "autovacuum_enabled=false" in table.settings or "autovacuum_enabled=off" in table.settings:
        yield Finding(
            "table", "warning", "autovacuum is off for the jobs table",
            "The dead rows of finished jobs accumulate, and fetches get ever slower.",
            f"alter table {name} reset (autovacuum_enabled);",
        )  # fmt: skip
    elif table.changes >= thresholds.busy_changes and not any(
        setting.startswith("autovacuum_vacuum") for setting in table.settings
    ):
        yield Finding(
            "table", "info", "the jobs table is busy and has the default autovacuum settings",
            "By default vacuum starts when a fifth of a table is dead, which is late for a queue with a "
            "backlog.",
            f"alter table {name} set ({ADVISED});",
        )  # fmt: skip


def check_transactions(transactions: Sequence[OldTransaction]) -> Iterator[Finding]:
    """What holds vacuum back."""
    if not transactions:
        yield well("transactions", "no transaction has been open for long")
        return
    for one in transactions:
        since = f" for {duration(one.age, units=1)}" if one.age is not None else ""
        what = f" ({one.what})" if one.what else ""
        ending = {
            "session": f"select pg_terminate_backend({one.name}); and set "
            "idle_in_transaction_session_timeout where such sessions come from.",
            "prepared transaction": f"commit prepared '{one.name}'; or rollback prepared '{one.name}';",
            "replication slot": f"select pg_drop_replication_slot('{one.name}'); if it is no longer needed.",
        }[one.kind]
        yield Finding(
            "transactions", "warning", f"the {one.kind} {one.name}{what} holds vacuum back{since}",
            "Dead rows of jobs that finished since then cannot be removed, and fetches get slower.",
            ending,
        )  # fmt: skip
