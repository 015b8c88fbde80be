"""Why ready jobs are not taken: the first reason that holds, for one job or for those of a task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...recovery.registry.workers import WorkerSummary
from ...values.flags import ACCEPTED, MARK
from ...values.job import PAUSED_BY, Pause
from ...values.text import count, did_you_mean, duration, similar_names
from .facts import COUNTED, QueueFacts, ReadyFacts
from .values import Explanation, ExplanationKind, Remedy, sentence, words

STALE = 4 * 3600.0
"""Seconds after which every runtime clears a lock."""
OVERDUE = 10.0
"""Seconds that a ready job may wait although a slot is free."""
CLOCK_OFF = 2.0
"""Seconds by which a worker's clock may differ."""
SHOWN = 5
"""Workers that the evidence names."""
DOCTOR: Remedy = Remedy("Open the doctor", page="/doctor")
WORKERS: Remedy = Remedy("Open workers", page="/workers")


def decide_ready(facts: ReadyFacts) -> Explanation:
    """The first reason that holds. Without one the jobs should start soon."""
    for reason in (
        _paused, _queue, _without_worker, _paused_workers, _limited, _flags, _in_line, _idle,
    ):  # fmt: skip
        for explanation in reason(facts):
            return explanation
    return Explanation(
        kind="soon",
        tone="ok",
        headline="It is ready and should start within the poll interval.",
        evidence=[*_slots(facts.able), *_line(facts)],
    )


# -- pauses and queues -------------------------------------------------------------------------------------


def pauses_of(facts: ReadyFacts) -> Iterator[tuple[Pause, ExplanationKind, str]]:
    """The pauses that concern the jobs, with words for each. A paused schedule concerns no job."""
    for pause in facts.pools.pauses:
        if pause.schedule is not None:
            continue
        if pause.queue_name is not None:
            if pause.queue_name == facts.queue_name:
                yield pause, *_named("paused_queue", pause.queue_name, pause.terms)
        elif pause.task_identifier is None:
            yield pause, "paused_everything", words("paused_everything", terms=pause.terms)
        elif pause.task_identifier == facts.task:
            yield pause, *_named("paused_task", pause.task_identifier, pause.terms)


def _named(kind: ExplanationKind, name: str, terms: str) -> tuple[ExplanationKind, str]:
    return kind, words(kind, name=f" {name}", terms=terms)


def _paused(facts: ReadyFacts) -> Iterator[Explanation]:
    for pause, kind, text in pauses_of(facts):
        evidence = (
            [] if pause.paused_at is None else [f"Paused {duration(facts.since(pause.paused_at))} ago."]
        )
        if kind == "paused_queue":
            remedy = Remedy("Resume the queue", action="resume_queue", name=pause.queue_name or "")
        elif kind == "paused_task":
            evidence.append("Python workers obey the pause of a task, other runtimes do not.")
            remedy = Remedy("Resume the task", action="resume_task", name=pause.task_identifier or "")
        else:
            remedy = Remedy("Resume all tasks", action="resume_all")
        yield Explanation(kind=kind, headline=sentence(text), evidence=evidence, remedies=[remedy])


def _queue(facts: ReadyFacts) -> Iterator[Explanation]:
    queue = facts.queue
    if queue is None or not queue.is_full:
        return
    if any(holder == PAUSED_BY for holder, _ in queue.holders):
        yield Explanation(
            kind="paused_queue",
            headline=sentence(words("paused_queue", name=f" {queue.name}")),
            evidence=["Its row is locked, which every runtime obeys."],
            remedies=[Remedy("Resume the queue", action="resume_queue", name=queue.name)],
        )
        return
    holder, seconds = max(queue.holders, key=lambda found: found[1] or 0.0)
    pool = next((pool for pool in facts.pools.workers or () if pool.id == holder), None)
    if queue.running:
        job_id, worker = queue.running[0]
        at_once = "one job at a time" if queue.concurrency == 1 else f"{queue.concurrency} jobs at a time"
        evidence = [f"The queue runs {at_once}. Worker {worker} has locked it."]
        yield _busy_queue(queue, f" with job {job_id}", seconds, evidence, worker=worker, job_id=job_id)
    elif pool is not None and pool.is_alive and (pool.jobs_held is None or pool.jobs_held > 0):
        yield _busy_queue(queue, f" on {where(pool)}", seconds, [slots_of(pool)], worker=holder)
    else:
        yield _lost_lock(queue, holder, pool, seconds)


def _busy_queue(
    queue: QueueFacts, how: str, seconds: float | None, evidence: list[str], *, worker: str,
    job_id: int | None = None,
) -> Explanation:  # fmt: skip
    return Explanation(
        kind="queue_busy",
        job_id=job_id,
        worker=worker,
        headline=sentence(words("queue_busy", name=f" {queue.name}", details=how + _for(seconds))),
        evidence=evidence,
        remedies=[Remedy("Open the queue", page="/queue", name=queue.name)],
    )


def _lost_lock(
    queue: QueueFacts, holder: str, pool: WorkerSummary | None, seconds: float | None
) -> Explanation:
    if pool is None and (seconds is None or seconds < STALE):
        why = f"{holder} is not among the registered Python workers: another runtime, or a dead worker."
    elif pool is not None and not pool.is_alive:
        why = f"{holder} is dead; the next sweep unlocks the queue."
    else:
        why = f"No job of the queue is running on {holder}."
    details = f" by {holder}{_for(seconds)}"
    return Explanation(
        kind="queue_lock_lost",
        tone="bad",
        worker=holder,
        headline=sentence(words("queue_lock_lost", name=f" {queue.name}", details=details)),
        evidence=[why, "Every runtime clears such a lock after four hours."],
        remedies=[Remedy("Unlock the queue", action="unlock_queue", name=queue.name), DOCTOR],
    )


# -- workers -----------------------------------------------------------------------------------------------


def _without_worker(facts: ReadyFacts) -> Iterator[Explanation]:
    workers, has_others = facts.pools.workers, facts.pools.has_others
    is_late = facts.waited > OVERDUE
    if workers is None:
        if is_late:
            yield Explanation(
                kind="workers_unknown",
                headline=sentence(_of_one(facts, "It is ready: ") + words("workers_unknown")),
                evidence=["The Python-only tables are missing, or this role may not read them."],
            )
        return
    if facts.able:
        return
    python = "Python " if has_others else ""
    others = [
        "Workers of other runtimes may have it; they do not say which tasks they have.",
        *(f"{described(pool)} is running." for pool in facts.pools.others[:SHOWN] if pool.silent_for is None),
    ]
    alive = [pool for pool in workers if pool.is_alive]
    if not alive:
        if has_others and not is_late:
            return
        dead = max((pool.last_seen_at for pool in workers if pool.last_seen_at is not None), default=None)
        seen = [] if dead is None else [f"The last one was seen at {dead:%Y-%m-%d %H:%M:%S} UTC."]
        yield Explanation(
            kind="no_worker",
            tone="bad",
            headline=sentence(words("no_worker", python=python)),
            evidence=[*seen, *(others if has_others else ())],
            remedies=[WORKERS],
        )
        return
    known = {name for pool in alive for name in pool.tasks or ()}
    evidence = [f"{count(len(alive), 'worker')} running, with {count(len(known), 'task')}."]
    evidence += [
        f"{where(pool)} had it until {pool.last_seen_at:%Y-%m-%d %H:%M:%S} UTC."
        for pool in workers
        if not pool.is_alive and facts.task in (pool.tasks or ()) and pool.last_seen_at
    ]
    name = f" {facts.task}{did_you_mean(similar_names(facts.task, known))}"
    yield Explanation(
        kind="unknown_task",
        tone="bad",
        headline=sentence(words("unknown_task", python=python, name=name)),
        evidence=[*evidence, *(others if has_others else ())],
        remedies=[WORKERS],
    )


def _paused_workers(facts: ReadyFacts) -> Iterator[Explanation]:
    able = facts.able
    if able and all(pool.id in facts.pools.paused for pool in able):
        yield Explanation(
            kind="workers_paused",
            worker=able[0].id,
            headline=sentence(words("workers_paused")),
            evidence=[f"{where(pool)} is paused or stopping." for pool in able[:SHOWN]],
            remedies=[WORKERS],
        )


def _limited(facts: ReadyFacts) -> Iterator[Explanation]:
    for limit in facts.limits:
        name = f" {limit.name}"
        if limit.concurrency is not None and limit.running is not None and limit.running >= limit.concurrency:
            details = f": {limit.running} of {limit.concurrency} jobs are running"
            yield Explanation(
                kind="limit_concurrency",
                headline=sentence(words("limit_concurrency", name=name, details=details)),
                evidence=[f"It is shared by {', '.join(limit.tasks[:SHOWN])}.", *_line(facts)],
            )
        if limit.rate is not None and limit.may_start == 0:
            starts, period = limit.rate
            details = f": it allows {count(starts, 'start')} in {duration(period.total_seconds())}"
            yield Explanation(
                kind="limit_rate",
                headline=sentence(words("limit_rate", name=name, details=details)),
                evidence=_line(facts),
            )


def _flags(facts: ReadyFacts) -> Iterator[Explanation]:
    """Flags that the workers with the task refuse. Some do not say all their rules, or these may change."""
    flags = facts.flags
    if flags is None or not facts.able:
        return
    refusals = {pool.id: _refusals(pool, flags) for pool in facts.able}
    evidence = [
        f"{where(pool)} {' and '.join(refusals[pool.id])}." for pool in facts.able if refusals[pool.id]
    ][:SHOWN]
    if all(refusals.values()):
        is_one = len(facts.able) == 1
        workers = "the worker" if is_one else f"all {len(facts.able)} workers"
        refuse = "refuses" if is_one else "refuse"
        text = words("flags", workers=workers, refuse=refuse, flags=_named_flags(flags))
        others = ["Workers of other runtimes may take it."] if facts.pools.has_others else []
        yield Explanation(kind="flags", headline=sentence(text), evidence=[*evidence, *others])
        return
    silent = [pool for pool in facts.able if not refusals[pool.id] and _may_refuse(pool, flags)]
    if facts.waited >= OVERDUE and any(_has_free_slot(pool) for pool in silent):
        doubt = "They have free slots, and do not say which flags they refuse."
        yield Explanation(
            kind="flags",
            headline=sentence(words("flags", refuse="may refuse", flags=_named_flags(flags))),
            evidence=[doubt, *_slots(silent), *evidence],
        )


def _refusals(pool: WorkerSummary, flags: Sequence[str]) -> list[str]:
    """Why a worker does not take jobs with these flags; nothing if it does, or if it does not say."""
    return [] if pool.flag_rules is None else list(pool.flag_rules.refusals(flags))


def _may_refuse(pool: WorkerSummary, flags: Sequence[str]) -> bool:
    """Whether a worker that says no reason may have one."""
    rules = pool.flag_rules
    if rules is None:
        return bool(_shown_flags(flags))
    return ACCEPTED in rules.changing or bool(rules.changing and _shown_flags(flags))


def _shown_flags(flags: Sequence[str]) -> list[str]:
    """Those that are not notes of this package."""
    return sorted(flag for flag in flags if not flag.startswith(MARK))


def _named_flags(flags: Sequence[str]) -> str:
    shown = _shown_flags(flags)
    if not shown:
        return "jobs without flags"
    return f"the flag{'' if len(shown) == 1 else 's'} {', '.join(shown)}"


def _in_line(facts: ReadyFacts) -> Iterator[Explanation]:
    able = facts.able
    if not able or any(_has_free_slot(pool) for pool in able):
        return
    if all(pool.blocked is not None for pool in able):
        yield _blocked(able)
    elif facts.ahead:
        yield Explanation(
            kind="in_line",
            tone="run",
            headline=f"It is waiting in line: {_jobs(facts.ahead)} before it{_about(facts)}.",
            evidence=_slots(able),
        )
    else:
        yield Explanation(
            kind="slots_busy",
            tone="run",
            headline=sentence(_of_one(facts, "It is next: ") + words("slots_busy")),
            evidence=_slots(able),
        )


def _blocked(pools: list[WorkerSummary]) -> Explanation:
    pool = pools[0]
    seconds = pool.blocked.seconds if pool.blocked is not None else 0.0
    return Explanation(
        kind="blocked_loop",
        tone="bad",
        worker=pool.id,
        headline=sentence(words("blocked_loop", where=where(pool), details=_for(seconds))),
        evidence=[
            f"Job {each.blocked.job_id} of {each.blocked.task_identifier} blocks it."
            for each in pools
            if each.blocked is not None and each.blocked.job_id is not None
        ],
        remedies=[DOCTOR],
    )


def _idle(facts: ReadyFacts) -> Iterator[Explanation]:
    """Workers are alive and have free slots, but do not take them."""
    able = facts.able
    if facts.waited < OVERDUE or not able:
        return
    deaf = [pool for pool in able if pool.is_listening is False]
    off = [pool for pool in able if pool.clock is not None and abs(pool.clock) > CLOCK_OFF]
    if all(pool.blocked is not None for pool in able):
        yield _blocked(able)
    elif deaf:
        yield Explanation(
            kind="not_listening",
            worker=deaf[0].id,
            headline=sentence(words("not_listening")),
            evidence=[f"{where(pool)} does not listen." for pool in deaf[:SHOWN]],
            remedies=[DOCTOR],
        )
    elif off:
        yield Explanation(
            kind="clock",
            worker=off[0].id,
            headline=sentence(words("clock")),
            evidence=[_clock(pool) for pool in off[:SHOWN]],
            remedies=[DOCTOR],
        )
    else:
        start = _of_one(facts, f"It has been ready for {duration(facts.waited)}: ")
        text = words("overdue", **({"jobs": "it"} if facts.is_one else {}))
        yield Explanation(
            kind="overdue",
            headline=sentence(start + text),
            evidence=[*_slots(able), *_line(facts)],
            remedies=[DOCTOR],
        )


# -- parts of sentences ------------------------------------------------------------------------------------


def described(pool: WorkerSummary) -> str:
    """A pool of another runtime, for people."""
    return f"The {pool.runtime} worker {pool.id}" if pool.runtime != "unknown" else f"The worker {pool.id}"


def where(pool: WorkerSummary) -> str:
    """A pool, for people."""
    return f"{pool.host} (process {pool.pid})" if pool.host is not None else pool.id


def slots_of(pool: WorkerSummary) -> str:
    """How busy a pool is."""
    slots = _number_of_slots(pool)
    running = "an unknown number" if pool.running is None else str(len(pool.running))
    return f"{where(pool)}: {running}{f' of {slots}' if slots else ''} slots busy."


def _slots(pools: list[WorkerSummary]) -> list[str]:
    return [slots_of(pool) for pool in pools[:SHOWN]]


def _has_free_slot(pool: WorkerSummary) -> bool:
    return pool.concurrency is None or len(pool.running or ()) < _number_of_slots(pool)


def _number_of_slots(pool: WorkerSummary) -> int:
    """Of all lanes: reports do not say in which lane a job runs."""
    return sum(lane.slots for lane in pool.lanes) if pool.lanes else pool.concurrency or 0


def _clock(pool: WorkerSummary) -> str:
    ahead = pool.clock or 0.0
    return f"{where(pool)} is {duration(abs(ahead))} {'ahead' if ahead > 0 else 'behind'}."


def _of_one(facts: ReadyFacts, start: str) -> str:
    return start if facts.is_one else ""


def _for(seconds: float | None) -> str:
    return "" if seconds is None else f", for {duration(seconds)}"


def _line(facts: ReadyFacts) -> list[str]:
    return [f"Before it in line: {_jobs(facts.ahead)}{_about(facts)}."] if facts.ahead else []


def _jobs(ahead: int) -> str:
    return count(ahead, "job") if ahead < COUNTED else f"{ahead:,}+ jobs"


def _about(facts: ReadyFacts) -> str:
    """How long the jobs before it take at the pace of the last minutes."""
    if not facts.rate or facts.rate < 0 or facts.ahead is None or facts.ahead >= COUNTED:
        return ""
    return f", about {duration(facts.ahead / facts.rate)}"
