"""Why does a job not run? A decision over facts, in a fixed order: the first reason that holds."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import UTC

from ...database.connections.connection import Connection
from ...database.statements.inspection import JobDetails
from ...recovery.registry.workers import WorkerSummary, runtime_of
from ...values.schema_name import SchemaName
from ...values.text import LONGEST, duration, how_it_failed
from .facts import JobFacts, gather, ready_since
from .ready import DOCTOR, STALE, WORKERS, decide_ready, described, pauses_of, slots_of, where
from .values import Explanation, Remedy, sentence

LONG = 3.0
"""A run is unusual if it takes this many times as long as usual."""
RETRY: Remedy = Remedy("Retry", action="retry")
RUN_NOW: Remedy = Remedy("Run now", action="run_now")
GONE = Explanation(
    kind="gone", tone="idle", headline="It is not in the queue: it has completed, or was deleted."
)


async def explain(connection: Connection, schema: SchemaName, job: JobDetails) -> Explanation:
    """Read the facts about a job, and decide."""
    return decide(await gather(connection, schema, job))


def decide(facts: JobFacts) -> Explanation:
    """The first reason that holds."""
    if facts.job.state == "running":
        return _locked(facts)
    if facts.job.state == "failed":
        return _failed(facts)
    if facts.job.state == "scheduled":
        return _scheduled(facts)
    return next(_held(facts), None) or decide_ready(facts)


def _held(facts: JobFacts) -> Iterator[Explanation]:
    """It looks ready while it runs in the transaction that fetched it."""
    for pool in facts.able:
        started = next((one.started_at for one in pool.running or () if one.id == facts.job.id), None)
        if started is None or started < ready_since(facts.job):  # an earlier attempt
            continue
        evidence = [f"Its last report, {_ago(facts, pool)}, has it among its running jobs."]
        if pool.blocked is not None:
            evidence.append(
                f"The event loop of this pool has been blocked for {duration(pool.blocked.seconds)}: until "
                "that ends, no one can change the job."
            )
        yield Explanation(
            kind="held",
            tone="run" if pool.blocked is None else "warn",
            worker=pool.id,
            headline=f"{where(pool)} runs it, and holds it in an open transaction.",
            evidence=evidence,
            remedies=[DOCTOR] if pool.blocked is not None else [],
        )


def _ago(facts: JobFacts, pool: WorkerSummary) -> str:
    return "just now" if pool.last_seen_at is None else f"{duration(facts.since(pool.last_seen_at))} ago"


def _locked(facts: JobFacts) -> Explanation:
    job, pool = facts.job, facts.holder
    locked_for = facts.since(job.locked_at)
    if pool is None or pool.is_alive is None:
        return _locked_by_unknown(facts, job.locked_by or "an unknown worker", locked_for)
    if not pool.is_alive:
        return _locked_by_dead(pool, locked_for)
    started = next((one.started_at for one in pool.running or () if one.id == job.id), None)
    if facts.is_cancelled:
        return Explanation(
            kind="cancelling",
            worker=pool.id,
            headline=f"It is running on {where(pool)} and was asked to end.",
            evidence=[f"Attempt {job.attempts} of {job.max_attempts}, locked {duration(locked_for)} ago."],
        )
    if started is None and pool.running is not None:
        return Explanation(
            kind="prefetched",
            tone="run",
            worker=pool.id,
            headline=f"{where(pool)} has locked it and is about to run it.",
            evidence=[
                f"Locked {duration(locked_for)} ago; the pool's last report does not have it among its "
                "running jobs yet.",
                slots_of(pool),
            ],
        )
    return _running(facts, pool, facts.since(started) if started is not None else locked_for)


def _running(facts: JobFacts, pool: WorkerSummary, seconds: float) -> Explanation:
    job = facts.job
    evidence = [f"Attempt {job.attempts} of {job.max_attempts}."]
    if facts.usual is not None:
        evidence.append(f"95 % of the runs of {facts.task} take less than {duration(facts.usual)}.")
    if pool.blocked is not None:
        evidence.append(
            f"The event loop of this pool has been blocked for {duration(pool.blocked.seconds)}"
            + (f" by job {pool.blocked.job_id}." if pool.blocked.job_id is not None else ".")
        )
    is_long = facts.usual is not None and seconds > max(1.0, LONG * facts.usual)
    return Explanation(
        kind="running_long" if is_long else "running",
        tone="warn" if is_long else "run",
        worker=pool.id,
        headline=f"It is running on {where(pool)}, for {duration(seconds)}"
        + (", longer than usual." if is_long else "."),
        evidence=evidence,
        remedies=[Remedy("Cancel", action="cancel")] if is_long else [],
    )


def _locked_by_dead(pool: WorkerSummary, locked_for: float) -> Explanation:
    seen = (
        [] if pool.last_seen_at is None else [f"Last heartbeat: {pool.last_seen_at:%Y-%m-%d %H:%M:%S} UTC."]
    )
    when = f"in {duration(pool.dead_in)}" if pool.dead_in else "with the next sweep"
    return Explanation(
        kind="dead_worker",
        tone="bad",
        worker=pool.id,
        headline=f"Its worker {where(pool)} is dead. The job comes back {when}.",
        evidence=[
            *seen,
            f"Locked {duration(locked_for)} ago.",
            "Any running Python worker with recovery returns it to the queue.",
        ],
        remedies=[Remedy("Unlock its jobs now", action="unlock_worker", name=pool.id)],
    )


def _locked_by_unknown(facts: JobFacts, name: str, locked_for: float) -> Explanation:
    if locked_for >= STALE:
        return Explanation(
            kind="stale_lock",
            tone="bad",
            worker=name,
            headline=f"It has been locked by {name} for {duration(locked_for)}: the lock is stale.",
            evidence=["Every runtime clears locks older than four hours. No worker may be running."],
            remedies=[Remedy("Unlock its jobs now", action="unlock_worker", name=name)],
        )
    cleared = f"If it is dead, the lock is cleared in {duration(STALE - locked_for)}."
    pool = next((each for each in facts.pools.others if each.id == name), None)
    if pool is not None and pool.last_seen_at is not None:
        return _locked_by_foreign(facts, pool, locked_for, cleared)
    if facts.pools.workers is None:
        known = (
            "The Python-only tables are missing or may not be read, so it is not known whether it is alive."
        )
    elif runtime_of(name) == "Node":
        known = "It is a Node worker. Those send no heartbeats."
    elif runtime_of(name) == "Rust":
        known = "It is a Rust worker without recovery. Those send no heartbeats."
    else:
        known = "It is a worker of another runtime, or one without recovery."
    return Explanation(
        kind="unknown_worker",
        tone="run",
        worker=name,
        headline=f"It is locked by {name}, for {duration(locked_for)}; it is unknown whether that is alive.",
        evidence=[known, cleared, _by_hand(name)],
        remedies=[WORKERS],
    )


def _locked_by_foreign(facts: JobFacts, pool: WorkerSummary, locked_for: float, cleared: str) -> Explanation:
    seen = f"Its last heartbeat was {_ago(facts, pool)}."
    if pool.silent_for is None:
        return Explanation(
            kind="running",
            tone="run",
            worker=pool.id,
            headline=f"{described(pool)} runs it, for {duration(locked_for)}.",
            evidence=[seen],
        )
    return Explanation(
        kind="unknown_worker",
        tone="warn",
        worker=pool.id,
        headline=f"{described(pool)} has locked it, and has sent no heartbeat for "
        f"{duration(pool.silent_for)}.",
        evidence=[
            seen,
            "Rust workers with recovery return it to the queue after their threshold.",
            cleared,
            _by_hand(pool.id),
        ],
        remedies=[WORKERS],
    )


def _by_hand(worker_id: str) -> str:
    return f"If you know that it is dead, run: `graphile-worker sweep --worker {shlex.quote(worker_id)}`."


def _failed(facts: JobFacts) -> Explanation:
    job = facts.job
    if facts.is_cancelled:
        return Explanation(
            kind="cancelled",
            tone="idle",
            headline="It was cancelled. It will not run again.",
            evidence=["Its worker, or the next sweep, deletes it."],
        )
    failed_at = "" if job.failed_at is None else f", {duration(facts.since(job.failed_at))} ago"
    how = how_it_failed(job.attempts_made, job.max_attempts)
    return Explanation(
        kind="no_attempts",
        tone="bad",
        headline=f"It failed permanently{failed_at}{f': {how}' if how else ''}.",
        evidence=["It stays in the table until it is retried, rescheduled or deleted."],
        remedies=[RETRY, Remedy("Same error elsewhere", page="/failures")],
    )


def _scheduled(facts: JobFacts) -> Explanation:
    job = facts.job
    seconds = max(0.0, (job.run_at - facts.now).total_seconds())
    is_never = seconds >= LONGEST
    at = f"{job.run_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    paused = [sentence(text) for _, _, text in pauses_of(facts)]
    if job.attempts:
        times = "once" if job.attempts == 1 else f"{job.attempts} times"
        return Explanation(
            kind="retry_later",
            headline=f"It failed {times}, and its next attempt is never due."
            if is_never
            else f"It failed {times} and waits for its next attempt, in {duration(seconds)}.",
            evidence=[f"Attempt {job.attempts + 1} of {job.max_attempts} is due at {at}.", *paused],
            remedies=[RUN_NOW],
        )
    return Explanation(
        kind="later",
        tone="idle",
        headline="It is never due." if is_never else f"It is due later: in {duration(seconds)}.",
        evidence=[f"Its run_at is {at}.", *paused],
        remedies=[RUN_NOW],
    )
