"""Why does a job not run? A decision over facts, in a fixed order: the first reason that holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ...database.statements.inspection import JobDetails
from ...database.statements.limits import LimitSummary
from ...recovery.registry.workers import WorkerSummary
from ...values.job import PAUSED_BY, Pause
from ...values.text import count, did_you_mean, similar_names
from ..models.common import Count
from ..models.explanation import Explanation, Remedy
from ..times import duration

STALE = 4 * 3600.0
"""Seconds after which every runtime clears a lock."""
OVERDUE = 10.0
"""Seconds that a ready job may wait although a slot is free."""
CLOCK_OFF = 2.0
"""Seconds by which a worker's clock may differ."""
LONG = 3.0
"""A run is unusual if it takes this many times as long as usual."""
RETRY: Remedy = Remedy("Retry", action="retry")
RUN_NOW: Remedy = Remedy("Run now", action="run_now")
DOCTOR: Remedy = Remedy("Open the doctor", page="/doctor")


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """The named queue of the job, with the tracks of a wide one."""

    name: str
    holders: list[tuple[str, float]]
    """Who holds the queue or a track of it, and for how many seconds."""
    width: int = 1
    running: list[tuple[int, str]] = field(default_factory=list)
    """Ids of jobs of the queue that workers report as running, and their pools."""

    @property
    def is_full(self) -> bool:
        return len(self.holders) >= self.width


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What is known when the decision is made."""

    job: JobDetails
    now: datetime
    workers: list[WorkerSummary] | None = None
    """Registered Python pools; None if they cannot be read."""
    has_others: bool = False
    """Whether workers of other runtimes may be running."""
    quiet: frozenset[str] = frozenset()
    """Pools that were asked to stop or to fetch nothing."""
    pauses: list[Pause] = field(default_factory=list)
    limits: list[LimitSummary] = field(default_factory=list)
    """Those of the job's task."""
    queue: QueueFacts | None = None
    ahead: Count | None = None
    """Ready jobs before it in line."""
    rate: float | None = None
    """Jobs per second that were finished lately."""
    usual: float | None = None
    """Seconds that 95 % of the runs of this task do not exceed."""
    is_cancelled: bool = False

    @property
    def holder(self) -> WorkerSummary | None:
        return next((pool for pool in self.workers or () if pool.id == self.job.locked_by), None)

    @property
    def able(self) -> list[WorkerSummary]:
        """Pools that are alive and have the task."""
        return [
            pool
            for pool in self.workers or ()
            if pool.is_alive and self.job.task_identifier in (pool.tasks or ())
        ]

    def since(self, at: datetime | None) -> float:
        return 0.0 if at is None else max(0.0, (self.now - at).total_seconds())


def decide(facts: JobFacts) -> Explanation:
    """The first reason that holds."""
    job = facts.job
    if job.state == "locked":
        return _locked(facts)
    if job.state == "failed":
        return _failed(facts)
    if job.state == "scheduled":
        return _scheduled(facts)
    reasons = (
        _held(facts),
        _paused(facts),
        _queue(facts),
        _without_worker(facts),
        _quiet(facts),
        _limited(facts),
        _flags(facts),
        _in_line(facts),
        _idle(facts),
    )
    for reason in reasons:
        for explanation in reason:
            return explanation
    return _soon(facts)


def _held(facts: JobFacts) -> Iterator[Explanation]:
    """It looks ready while it runs in the transaction that fetched it."""
    for pool in facts.able:
        started = next((one.started_at for one in pool.running or () if one.id == facts.job.id), None)
        if started is None or started < _ready_since(facts.job):  # an earlier attempt
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
            headline=f"{_where(pool)} runs it, and holds it in an open transaction.",
            evidence=evidence,
            remedies=[DOCTOR] if pool.blocked is not None else [],
        )
        return


def _ago(facts: JobFacts, pool: WorkerSummary) -> str:
    return "just now" if pool.last_seen_at is None else f"{duration(facts.since(pool.last_seen_at))} ago"


def _locked(facts: JobFacts) -> Explanation:
    job, pool = facts.job, facts.holder
    name = job.locked_by or "an unknown worker"
    locked_for = facts.since(job.locked_at)
    if pool is None or pool.is_alive is None:
        return _locked_by_unknown(facts, name, locked_for)
    if not pool.is_alive:
        return _locked_by_dead(pool, locked_for)
    started = next((one.started_at for one in pool.running or () if one.id == job.id), None)
    where = _where(pool)
    if facts.is_cancelled:
        return Explanation(
            kind="cancelling",
            tone="warn",
            worker=pool.id,
            headline=f"It is running on {where} and was asked to end.",
            evidence=[f"Attempt {job.attempts} of {job.max_attempts}, locked {duration(locked_for)} ago."],
        )
    if started is None and pool.running is not None:
        return Explanation(
            kind="prefetched",
            tone="run",
            worker=pool.id,
            headline=f"{where} has locked it and is about to run it.",
            evidence=[
                f"Locked {duration(locked_for)} ago; the pool's last report does not have it among its "
                "running jobs yet.",
                _busy(pool),
            ],
        )
    return _running(facts, pool, where, facts.since(started) if started is not None else locked_for)


def _running(facts: JobFacts, pool: WorkerSummary, where: str, seconds: float) -> Explanation:
    job = facts.job
    evidence = [f"Attempt {job.attempts} of {job.max_attempts}."]
    if facts.usual is not None:
        evidence.append(f"95 % of the runs of {job.task_identifier} take less than {duration(facts.usual)}.")
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
        headline=f"It is running on {where}, for {duration(seconds)}"
        + (", longer than usual." if is_long else "."),
        evidence=evidence,
        remedies=[Remedy("Cancel", action="cancel")] if is_long else [],
    )


def _locked_by_dead(pool: WorkerSummary, locked_for: float) -> Explanation:
    seen = f"Last heartbeat: {pool.last_seen_at:%Y-%m-%d %H:%M:%S} UTC." if pool.last_seen_at else ""
    when = "with the next sweep" if not pool.dead_in else f"in {duration(pool.dead_in)}"
    return Explanation(
        kind="dead_worker",
        tone="bad",
        worker=pool.id,
        headline=f"Its worker {_where(pool)} is dead. The job comes back {when}.",
        evidence=[
            text
            for text in (
                seen,
                f"Locked {duration(locked_for)} ago.",
                "Any running Python worker with recovery returns it to the queue.",
            )
            if text
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
    known = (
        "Registered Python workers do not include it: it is a worker of another runtime, or one without "
        "recovery."
        if facts.workers is not None
        else "The Python-only tables are missing or may not be read, so it is not known whether it is alive."
    )
    return Explanation(
        kind="unknown_worker",
        tone="run",
        worker=name,
        headline=f"It is locked by {name}, for {duration(locked_for)}; nothing tells whether that is alive.",
        evidence=[known, f"If it is dead, the lock is cleared in {duration(STALE - locked_for)}."],
    )


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
    used = "the attempt" if job.max_attempts == 1 else f"all {job.max_attempts} attempts"
    return Explanation(
        kind="no_attempts",
        tone="bad",
        headline=f"It failed permanently{failed_at}: {used} used.",
        evidence=["It stays in the table until it is retried, rescheduled or deleted."],
        remedies=[RETRY, Remedy("Same error elsewhere", page="/failures")],
    )


def _scheduled(facts: JobFacts) -> Explanation:
    job = facts.job
    wait = max(0.0, (job.run_at - facts.now).total_seconds())
    at = f"{job.run_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    paused = [f"{_of_pause(pause)}." for pause in facts.pauses if _applies_to(pause, job)]
    if job.attempts:
        times = "once" if job.attempts == 1 else f"{job.attempts} times"
        return Explanation(
            kind="retry_later",
            headline=f"It failed {times} and waits for its next attempt, in {duration(wait)}.",
            evidence=[f"Attempt {job.attempts + 1} of {job.max_attempts} is due at {at}.", *paused],
            remedies=[RUN_NOW],
        )
    return Explanation(
        kind="later",
        tone="idle",
        headline=f"It is due later: in {duration(wait)}.",
        evidence=[f"Its run_at is {at}.", *paused],
        remedies=[RUN_NOW],
    )


def _paused(facts: JobFacts) -> Iterator[Explanation]:
    for pause in facts.pauses:
        if not _applies_to(pause, facts.job):
            continue
        since = [] if pause.paused_at is None else [f"Paused {duration(facts.since(pause.paused_at))} ago."]
        headline = f"{_of_pause(pause)}."
        if pause.queue_name is not None:
            yield Explanation(
                kind="paused_queue",
                headline=headline,
                evidence=since,
                remedies=[Remedy("Resume the queue", action="resume_queue", name=pause.queue_name)],
            )
        elif pause.task_identifier is not None:
            yield Explanation(
                kind="paused_task",
                headline=headline,
                evidence=[*since, "Python workers obey the pause of a task, other runtimes do not."],
                remedies=[Remedy("Resume the task", action="resume_task", name=pause.task_identifier)],
            )
        else:
            yield Explanation(
                kind="paused_everything",
                headline=headline,
                evidence=since,
                remedies=[Remedy("Resume all tasks", action="resume_all")],
            )


def _applies_to(pause: Pause, job: JobDetails) -> bool:
    if pause.queue_name is not None:
        return pause.queue_name == job.queue_name
    return pause.task_identifier in (None, job.task_identifier)


def _of_pause(pause: Pause) -> str:
    what = pause.what
    return f"{what[0].upper()}{what[1:]} is paused{pause.terms}"


def _queue(facts: JobFacts) -> Iterator[Explanation]:
    queue = facts.queue
    if queue is None or not queue.is_full:
        return
    if any(holder == PAUSED_BY for holder, _ in queue.holders):
        yield Explanation(
            kind="paused_queue",
            headline=f"Queue {queue.name} is paused.",
            evidence=["Its row is locked, which every runtime obeys."],
            remedies=[Remedy("Resume the queue", action="resume_queue", name=queue.name)],
        )
        return
    holder, seconds = max(queue.holders, key=lambda found: found[1])
    pool = next((pool for pool in facts.workers or () if pool.id == holder), None)
    page = Remedy("Open the queue", page="/queue", name=queue.name)
    if queue.running:
        other, where = queue.running[0]
        at_once = "one job at a time" if queue.width == 1 else f"{queue.width} jobs at a time"
        yield Explanation(
            kind="queue_busy",
            job_id=other,
            worker=where,
            headline=f"Its queue {queue.name} is busy with job {other}, for {duration(seconds)}.",
            evidence=[f"The queue runs {at_once}. Worker {where} has locked it."],
            remedies=[page],
        )
    elif pool is not None and pool.is_alive and (pool.jobs_held is None or pool.jobs_held > 0):
        yield Explanation(
            kind="queue_busy",
            worker=holder,
            headline=f"Its queue {queue.name} is busy on {_where(pool)}, for {duration(seconds)}.",
            evidence=[_busy(pool)],
            remedies=[page],
        )
    else:
        yield _lost_lock(facts, queue, holder, pool, seconds)


def _lost_lock(
    facts: JobFacts, queue: QueueFacts, holder: str, pool: WorkerSummary | None, seconds: float
) -> Explanation:
    if pool is None and seconds < STALE:
        why = f"{holder} is not among the registered Python workers: another runtime, or a dead worker."
    elif pool is not None and not pool.is_alive:
        why = f"{holder} is dead; the next sweep unlocks the queue."
    else:
        why = f"No job of the queue is running on {holder}."
    return Explanation(
        kind="queue_lock_lost",
        tone="bad",
        worker=holder,
        headline=f"Its queue {queue.name} has been locked by {holder} for {duration(seconds)}.",
        evidence=[why, "Every runtime clears such a lock after four hours."],
        remedies=[Remedy("Unlock the queue", action="unlock_queue", name=queue.name), DOCTOR],
    )


def _without_worker(facts: JobFacts) -> Iterator[Explanation]:
    task = facts.job.task_identifier
    if facts.workers is None:
        if facts.since(_ready_since(facts.job)) > OVERDUE:
            yield Explanation(
                kind="workers_unknown",
                headline="It is ready. Nothing tells which workers are running.",
                evidence=["The Python-only tables are missing, or this role may not read them."],
            )
        return
    alive = [pool for pool in facts.workers if pool.is_alive]
    if facts.able:
        return
    others = ["Workers of other runtimes may have it; they do not say which tasks they have."]
    if not alive:
        if facts.has_others and facts.since(_ready_since(facts.job)) <= OVERDUE:
            return
        dead = sorted(
            (pool.last_seen_at for pool in facts.workers if pool.last_seen_at is not None), reverse=True
        )
        seen = [f"The last one was seen at {dead[0]:%Y-%m-%d %H:%M:%S} UTC."] if dead else []
        yield Explanation(
            kind="no_worker",
            tone="bad",
            headline="No Python worker is running.",
            evidence=[*seen, *(others if facts.has_others else ())],
            remedies=[Remedy("Open workers", page="/workers")],
        )
        return
    known = {name for pool in alive for name in pool.tasks or ()}
    had = [pool for pool in facts.workers if not pool.is_alive and task in (pool.tasks or ())]
    evidence = [f"{count(len(alive), 'worker')} running, with {count(len(known), 'task')}."]
    evidence += [
        f"{_where(pool)} had it until {pool.last_seen_at:%H:%M:%S} UTC." for pool in had if pool.last_seen_at
    ]
    evidence += others if facts.has_others else []
    question = did_you_mean(similar_names(task, known)) or "."
    yield Explanation(
        kind="unknown_task",
        tone="bad",
        headline=f"No running worker has the task {task}{question}",
        evidence=evidence,
        remedies=[Remedy("Open workers", page="/workers")],
    )


def _quiet(facts: JobFacts) -> Iterator[Explanation]:
    able = facts.able
    if able and all(pool.id in facts.quiet for pool in able):
        yield Explanation(
            kind="workers_quiet",
            worker=able[0].id,
            headline="All workers that have its task were asked to fetch no more jobs.",
            evidence=[f"{_where(pool)} is quiet or stopping." for pool in able[:5]],
            remedies=[Remedy("Open workers", page="/workers")],
        )


def _limited(facts: JobFacts) -> Iterator[Explanation]:
    for limit in facts.limits:
        if limit.concurrency is not None and limit.running is not None and limit.running >= limit.concurrency:
            yield Explanation(
                kind="limit_concurrency",
                headline=f"The limit {limit.name} is reached: {limit.running} of "
                f"{limit.concurrency} jobs are running.",
                evidence=[f"It is shared by {', '.join(limit.tasks[:5])}.", *_line(facts)],
            )
        if limit.rate is not None and limit.may_start == 0:
            starts, period = limit.rate
            yield Explanation(
                kind="limit_rate",
                headline=f"The limit {limit.name} allows {count(starts, 'start')} in "
                f"{duration(period.total_seconds())}, and {'it is' if starts == 1 else 'they are'} used up.",
                evidence=_line(facts),
            )


def _flags(facts: JobFacts) -> Iterator[Explanation]:
    """Flags that the workers with its task forbid. Some do not say: their flags may change."""
    own = [flag for flag in sorted(facts.job.flags or ()) if not flag.startswith("py:")]
    if not own or not facts.able:
        return
    forbidden = {pool.id: sorted(set(own) & set(pool.forbidden_flags or ())) for pool in facts.able}
    others = [pool for pool in facts.able if not forbidden[pool.id]]
    if not others:
        found = sorted({flag for flags in forbidden.values() for flag in flags})
        name = f"its flag {found[0]}" if len(found) == 1 else f"its flags {', '.join(found)}"
        workers = "The worker" if len(facts.able) == 1 else f"All {len(facts.able)} workers"
        verb = "forbids" if len(facts.able) == 1 else "forbid"
        yield Explanation(
            kind="flags",
            headline=f"{workers} with its task {verb} {name}.",
            evidence=[
                *[f"{_where(pool)} forbids {', '.join(forbidden[pool.id])}." for pool in facts.able[:5]],
                *(["Workers of other runtimes may take it."] if facts.has_others else []),
            ],
        )
        return
    unknown = [pool for pool in others if pool.forbidden_flags is None]
    is_overdue = facts.since(_ready_since(facts.job)) >= OVERDUE
    if unknown and is_overdue and any(_has_free_slot(pool, facts.job.task_identifier) for pool in unknown):
        yield Explanation(
            kind="flags",
            headline=f"Workers with its task have free slots and leave it: its flags are {', '.join(own)}.",
            evidence=[
                "They do not say which flags they forbid; these may be among them.",
                *[_busy(pool) for pool in unknown[:5]],
            ],
        )


def _in_line(facts: JobFacts) -> Iterator[Explanation]:
    able = facts.able
    if not able or any(_has_free_slot(pool, facts.job.task_identifier) for pool in able):
        return
    blocked = [pool for pool in able if pool.blocked is not None]
    if blocked and len(blocked) == len(able):
        yield _blocked(blocked)
        return
    slots = [_busy(pool) for pool in able[:5]]
    if facts.ahead is not None and facts.ahead.value > 0:
        yield Explanation(
            kind="in_line",
            tone="run",
            headline=f"It is waiting in line: {_jobs(facts.ahead)} before it{_about(facts)}.",
            evidence=slots,
        )
    else:
        yield Explanation(
            kind="slots_busy",
            tone="run",
            headline="It is next: all slots of the workers with its task are busy.",
            evidence=slots,
        )


def _blocked(pools: list[WorkerSummary]) -> Explanation:
    pool = pools[0]
    seconds = pool.blocked.seconds if pool.blocked is not None else 0.0
    return Explanation(
        kind="blocked_loop",
        tone="bad",
        worker=pool.id,
        headline=f"The event loop of {_where(pool)} has been blocked for {duration(seconds)}.",
        evidence=[
            f"Job {each.blocked.job_id} of {each.blocked.task_identifier} blocks it."
            for each in pools
            if each.blocked is not None and each.blocked.job_id is not None
        ],
        remedies=[DOCTOR],
    )


def _idle(facts: JobFacts) -> Iterator[Explanation]:
    """Workers are alive and have free slots, but do not take it."""
    if facts.since(_ready_since(facts.job)) < OVERDUE or not facts.able:
        return
    blocked = [pool for pool in facts.able if pool.blocked is not None]
    if len(blocked) == len(facts.able):
        yield _blocked(blocked)
        return
    deaf = [pool for pool in facts.able if pool.is_listening is False]
    if deaf:
        yield Explanation(
            kind="not_listening",
            worker=deaf[0].id,
            headline="Notifications do not reach the workers with its task; they find jobs by polling.",
            evidence=[f"{_where(pool)} does not listen." for pool in deaf[:5]],
            remedies=[DOCTOR],
        )
        return
    off = [pool for pool in facts.able if pool.clock is not None and abs(pool.clock) > CLOCK_OFF]
    if off:
        yield Explanation(
            kind="clock",
            worker=off[0].id,
            headline="The clock of a worker with its task is wrong.",
            evidence=[_clock(pool) for pool in off[:5]],
            remedies=[DOCTOR],
        )
        return
    yield Explanation(
        kind="overdue",
        headline=f"It has been ready for {duration(facts.since(_ready_since(facts.job)))} although workers "
        "have free slots.",
        evidence=[*[_busy(pool) for pool in facts.able[:5]], *_line(facts)],
        remedies=[DOCTOR],
    )


def _clock(pool: WorkerSummary) -> str:
    ahead = pool.clock or 0.0
    return f"{_where(pool)} is {duration(abs(ahead))} {'ahead' if ahead > 0 else 'behind'}."


def _soon(facts: JobFacts) -> Explanation:
    return Explanation(
        kind="soon",
        tone="ok",
        headline="It is ready and should start within the poll interval.",
        evidence=[*[_busy(pool) for pool in facts.able[:5]], *_line(facts)],
    )


def _ready_since(job: JobDetails) -> datetime:
    return max(job.run_at, job.created_at)


def _has_free_slot(pool: WorkerSummary, task: str) -> bool:
    """Whether the lane of the task has a free slot, as far as the pool says."""
    running = len(pool.running or ())
    return pool.concurrency is None or running < _slots(pool, task)


def _slots(pool: WorkerSummary, task: str) -> int:
    """The slots of the pool. Reports do not say in which lane a job runs, so all lanes count together."""
    if pool.lanes:
        return sum(lane.slots for lane in pool.lanes)
    return pool.concurrency or 0


def _busy(pool: WorkerSummary) -> str:
    slots = _slots(pool, "")
    of = f" of {slots}" if slots else ""
    running = "an unknown number" if pool.running is None else str(len(pool.running))
    return f"{_where(pool)}: {running}{of} slots busy."


def _where(pool: WorkerSummary) -> str:
    return f"{pool.host} (process {pool.pid})" if pool.host is not None else pool.id


def _line(facts: JobFacts) -> list[str]:
    if facts.ahead is None or facts.ahead.value == 0:
        return []
    return [f"Before it in line: {_jobs(facts.ahead)}{_about(facts)}."]


def _jobs(found: Count) -> str:
    return f"{found} {'job' if found.value == 1 and found.kind == 'exact' else 'jobs'}"


def _about(facts: JobFacts) -> str:
    """How long the jobs before it take at the pace of the last minutes."""
    if facts.rate is None or facts.rate <= 0 or facts.ahead is None or facts.ahead.kind == "at_least":
        return ""
    return f", about {duration(facts.ahead.value / facts.rate)}"
