"""The checker: proves from a history that nothing was lost. Each rule is a function of the history alone.

A rule gives the sentences that say what is wrong; none when it holds. What excuses what is in `cut_offs`.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

import msgspec

from chaos.cut_offs import CutOffs
from chaos.free_slots import FreeSlots
from chaos.history import (
    AT_ONCE,
    BULK_QUEUE,
    LIMITED,
    QUEUE_CONCURRENCY,
    WIDE,
    Added,
    History,
    JobRow,
    Paused,
    Run,
)
from chaos.lost_runs import LostRuns

MAX_RECOVERIES = 5  # of the worker's defaults: a job whose worker died more often is given up

T = TypeVar("T")
Rule = Callable[[History], Iterator[str]]


class Violation(msgspec.Struct, frozen=True):
    """A promise that was not kept."""

    rule: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.sentence}"


def check(history: History) -> list[Violation]:
    """Every violation of every rule."""
    return [Violation(rule.__name__, sentence) for rule in RULES for sentence in rule(history)]


def every_committed_job_ran_or_waits(history: History) -> Iterator[str]:
    """Every committed job ran to its end, or is still waiting, or failed permanently by its own fault."""
    ended = {run.token for run in history.runs if run.outcome == "end"}
    rows = {row.token: row for row in history.jobs}
    superseded = _superseded(history)
    runs = _by_token(history)
    for added in history.added:
        row = rows.get(added.token)
        if added.token in ended or added.token in superseded:
            continue
        if row is None:
            yield f"{_job(added)} was committed, never ended, and is gone; {_runs(runs[added.token])}"
        elif row.is_out_of_attempts and not _failed_for_good(added, row, runs[added.token]):
            yield (
                f"{_job(added)} is out of attempts ({row.attempts} of {row.max_attempts}: {row.last_error}) "
                f"without a fault of its own; {_runs(runs[added.token])}"
            )


def nothing_uncommitted_ran(history: History) -> Iterator[str]:
    """What was rolled back did not run."""
    committed = {added.token for added in history.added}
    for token in sorted({run.token for run in history.runs} - committed):
        yield f"job {token} ran, and its add was never committed"


def no_job_ran_twice(history: History) -> Iterator[str]:
    """A job that ended, or is being run, is not run again unless its worker was killed or cut off."""
    for first, second, is_excused in second_runs(history, _excuses(history).excuse):
        if not is_excused:
            is_over = first.ended is not None and first.ended <= second.started
            when = "after it had ended" if is_over else "while it was being run"
            yield (
                f"job {first.job_id} ({first.token}) was run again {when}: "
                f"{_run(first)}, then {_run(second)}, and nothing had cut off the first worker"
            )


def second_runs(history: History, excuse: Callable[[Run, Run], T]) -> Iterator[tuple[Run, Run, T]]:
    """Each run of a job that had ended or was being run, with the earlier run and what excuses it."""
    ends = {worker.name: worker.ended for worker in history.workers}
    for runs in _by_job(history).values():
        for position, second in enumerate(runs):
            for first in runs[:position]:
                over = first.ended or ends.get(first.worker)
                if over is None or over > second.started or first.outcome == "end":
                    yield first, second, excuse(first, second)


def no_queue_ran_two_jobs_at_once(history: History) -> Iterator[str]:
    """Jobs of one named queue never overlap, except across a kill or cut-off of the first one's worker."""
    cut_offs = _excuses(history)
    queues: dict[str, list[Run]] = defaultdict(list)
    for run in history.runs:
        if run.queue is not None and not run.queue.startswith(WIDE):
            queues[run.queue].append(run)
    for name, runs in queues.items():
        open_runs: list[Run] = []
        for second in sorted(runs, key=lambda run: run.started):
            open_runs = [run for run in open_runs if _over(history, run) > second.started]
            for first in open_runs:
                if not cut_offs.excuse(first, second):
                    yield f"queue {name} ran two jobs at once: {_run(first)}, and {_run(second)}"
            open_runs.append(second)


def queues_ran_in_order(history: History) -> Iterator[str]:
    """Jobs of a queue that were added together are started in their order, except around a fault.

    After one, rows that a lost transaction has locked are passed.
    """
    series: dict[tuple[str, str], dict[int, Run]] = defaultdict(dict)
    for run in history.runs:
        if run.queue is not None and run.queue.startswith(BULK_QUEUE):
            bulk, number = run.token.split("/")[0].split("-")
            first = series[run.queue, bulk].setdefault(int(number), run)
            if run.started < first.started:
                series[run.queue, bulk][int(number)] = run
    for runs in series.values():
        in_order = [runs[number] for number in sorted(runs)]
        for first, second in pairwise(in_order):
            if second.started < first.started and not _is_near_fault(history, first, second):
                yield f"queue {first.queue} ran out of order: {_run(second)}, and then {_run(first)}"


def _is_near_fault(history: History, first: Run, second: Run) -> bool:
    aftermath = history.limits.aftermath
    return any(
        fault.at <= first.started and second.started <= fault.until + aftermath for fault in history.faults
    )


def no_limit_was_exceeded(history: History) -> Iterator[str]:
    """No more limited jobs run at once than may, without those of workers that were killed or cut off."""
    limited = [run for run in history.runs if run.token.endswith(LIMITED)]
    for runs in _too_many(history, limited, AT_ONCE):
        yield f"{len(runs)} limited jobs ran at once: {_runs(runs)}"


def no_queue_concurrency_was_exceeded(history: History) -> Iterator[str]:
    """No more jobs of a wide queue run at once than may, with the same exceptions."""
    queues: dict[str, list[Run]] = defaultdict(list)
    for run in history.runs:
        if run.queue is not None and run.queue.startswith(WIDE):
            queues[run.queue].append(run)
    for name, found in queues.items():
        for runs in _too_many(history, found, QUEUE_CONCURRENCY):
            yield f"queue {name} ran {len(runs)} jobs at once: {_runs(runs)}"


def _too_many(history: History, runs: list[Run], allowed: int) -> Iterator[list[Run]]:
    """More runs at once than are allowed, without those of workers that were killed or cut off."""
    cut_offs = _excuses(history)
    open_runs: list[Run] = []
    for second in sorted(runs, key=lambda run: run.started):
        open_runs = [run for run in open_runs if _over(history, run) > second.started]
        counted = [first for first in open_runs if not cut_offs.excuse(first, second)]
        if len(counted) >= allowed:
            yield [*counted, second]
        open_runs.append(second)


def nothing_paused_was_taken(history: History) -> Iterator[str]:
    """No worker locks a job of a queue while it is paused, whatever it knows: the database keeps it."""
    for pause in history.pauses:
        for run in history.runs:
            if pause.kind == "queue" and pause.stops(run) and pause.began_at < run.locked_at < pause.ended_at:
                after = run.locked_at - pause.began_at
                yield f"{_pause(pause)}, and a job was locked {after:.3f} s after that: {_run(run)}"


def nothing_paused_was_started(history: History) -> Iterator[str]:
    """A worker that could know of a pause starts nothing that is paused, not even what it had locked."""
    cut_offs = _excuses(history)
    is_listening = {worker.name: worker.shows_by == "lock" for worker in history.workers}
    limits = history.limits
    for pause in history.pauses:
        for run in history.runs:
            known = pause.began + (limits.told_within if is_listening[run.worker] else limits.looks_within)
            if not pause.stops(run) or not known <= run.started < pause.ended:
                continue
            if not cut_offs.has_not_heard(run):
                after = run.started - pause.began
                yield f"{_pause(pause)}, and a job was started {after:.3f} s after that: {_run(run)}"


def no_key_fell_back(history: History) -> Iterator[str]:
    """The last payload of a key is the last one run: an older one is not taken up after a newer was added."""
    newer = _next_of_key(history)
    for run in history.runs:
        following = newer.get(run.token)
        if following is not None and run.locked_at > following.at:
            yield (
                f"key {following.key}: {run.token} was taken up {run.locked_at - following.at:.3f} s after "
                f"{following.token} had replaced it; {_run(run)}"
            )


def nothing_is_locked_by_the_dead(history: History) -> Iterator[str]:
    """No job and no queue is locked by a dead pool some time after the last fault."""
    if history.seen_at < history.last_fault_at + history.limits.dead_within:
        return
    alive = _live_pools(history)
    after = f"{history.seen_at - history.last_fault_at:.0f} s after the last fault"
    for row in history.jobs:
        if row.locked_by is not None and row.locked_by not in alive:
            yield f"job {row.id} ({row.token}) is locked by the dead pool {row.locked_by} {after}"
    for queue in history.queues:
        if queue.locked_by is not None and queue.locked_by not in alive:
            yield f"queue {queue.name} is locked by the dead pool {queue.locked_by} {after}"


def no_queue_is_held_for_nothing(history: History) -> Iterator[str]:
    """A live pool that holds a queue holds a job of it."""
    held = {(row.queue, row.locked_by) for row in history.jobs if row.locked_by is not None}
    for queue in history.queues:
        if queue.locked_by in _live_pools(history) and (queue.name, queue.locked_by) not in held:
            yield f"queue {queue.name} is locked by {queue.locked_by}, which has no job of it"


def what_ended_was_written(history: History) -> Iterator[str]:
    """A job whose task ended well is gone, unless its worker had no chance to write that."""
    cut_offs = _excuses(history)
    rows = {(row.id, row.token): row for row in history.jobs}
    for run in history.runs:
        row = rows.get((run.job_id, run.token))
        if row is None or run.ended is None or run.outcome != "end" or cut_offs.may_not_be_written(run):
            continue
        if history.seen_at >= run.ended + history.limits.write_within:
            yield f"job {row.id} ({row.token}) ran to its end and is still there: {_run(run)}"


def nothing_due_is_left_waiting(history: History) -> Iterator[str]:
    """With every worker back, a job that may run does not wait for long."""
    limit = history.limits.due_within
    if history.seen_at < history.last_fault_at + limit:
        return
    for row in history.jobs:
        if row.locked_by is None and not row.is_out_of_attempts and row.due_for > limit:
            yield f"job {row.id} ({row.token}) has been ready for {row.due_for:.0f} s and no worker runs it"


def no_ready_job_waits_beside_a_free_slot(history: History) -> Iterator[str]:
    """However old a ready job is, a pool that may run it and has a free slot takes it soon."""
    free_slots = FreeSlots(history)
    for waited in history.waited:
        found = free_slots.longest(waited)
        if found is not None and found.seconds > history.limits.waits_within:
            yield (
                f"job {waited.job_id} ({waited.token}) was ready from {waited.began:.3f} to "
                f"{waited.ended:.3f}, and {found.pool} of worker {found.worker} had a free slot for "
                f"{found.seconds:.1f} s of that"
            )


def attempts_count_what_happened(history: History) -> Iterator[str]:
    """An attempt is a run that failed by its own fault; runs that were cut short do not count."""
    cut_offs = _excuses(history)
    rows = {(row.id, row.token): row for row in history.jobs}
    superseded = _superseded(history)
    for (job_id, token), runs in _by_job(history).items():
        least = most = 0
        for run in runs:
            if not least + 1 <= run.attempts <= most + 1:
                yield (
                    f"job {job_id} ({token}) was run as attempt {run.attempts} and should have been "
                    f"{_range(least + 1, most + 1)}; {_runs(runs)}"
                )
            if run.outcome == "failed":
                most += 1
                least += not cut_offs.may_not_be_written(run)
        row = rows.get((job_id, token))
        if row is None or row.locked_by is not None or token in superseded or _is_given_up(row, runs):
            continue
        if not least <= row.attempts <= most:
            yield (
                f"job {job_id} ({token}) counts {row.attempts} attempts and should count "
                f"{_range(least, most)}; {_runs(runs)}"
            )


def every_kept_job_is_there(history: History) -> Iterator[str]:
    """A kept job that is gone has one end; a job that failed permanently has one too."""
    if history.ends is None:
        return
    rows = {row.token: row for row in history.jobs}
    superseded = _superseded(history)
    completed = Counter(end.token for end in history.ends if end.state == "completed")
    failed = Counter(end.job_id for end in history.ends if end.state == "failed")
    for added in history.added:
        row = rows.get(added.token)
        if added.token in superseded:
            continue
        if row is None and added.kept and completed[added.token] != 1:
            yield f"{_job(added)} is gone and has {completed[added.token]} ends"
        elif row is not None and row.is_out_of_attempts and not failed[row.id]:
            yield f"{_job(added)} failed permanently ({row.last_error}) and has no end"


def no_end_without_its_job(history: History) -> Iterator[str]:
    """An end belongs to a job that was to be kept, has ended, and is gone; none is there twice."""
    kept = {added.token for added in history.added if added.kept}
    ended = {run.token for run in history.runs if run.outcome == "end"}
    failed = {run.job_id for run in history.runs if run.outcome == "failed"}
    rows = {row.token for row in history.jobs}
    given_up = {row.id for row in history.jobs if (row.last_error or "").startswith("Given up: ")}
    replaced = _superseded(history)
    superseded = {added.job_id for added in history.added if added.token in replaced}
    seen: set[str] = set()
    for end in history.ends or ():
        if end.state == "failed":
            if end.job_id not in failed | given_up | superseded:
                yield f"job {end.job_id} has a failed end, and no run of it failed"
            continue
        if end.state == "cancelled":  # its key was used again while it was locked, and then it came back
            if end.job_id not in superseded:
                yield f"job {end.job_id} has a cancelled end, and its key was not used again"
            continue
        token = end.token or ""
        if token not in kept:
            yield f"job {end.job_id} ({token}) has an end and was not to be kept"
        if token not in ended:
            yield f"job {end.job_id} ({token}) has an end, and no run of it ended"
        if token in rows:
            yield f"job {end.job_id} ({token}) has an end and is still there"
        if token in seen:
            yield f"job {end.job_id} ({token}) has two ends"
        seen.add(token)


def no_worker_ended_by_itself(history: History) -> Iterator[str]:
    """Whatever happens to the database, a worker goes on."""
    for worker in history.workers:
        if worker.ending == "ended":
            yield f"worker {worker.name} ended by itself with status {worker.status}"
        elif worker.ending == "left" and worker.status:
            yield f"worker {worker.name} was asked to leave and did so with status {worker.status}"
        elif worker.ending == "not started" and not any(
            fault.at <= (worker.ended or 0.0) and worker.started <= fault.until + history.limits.aftermath
            for fault in history.faults
        ):
            yield f"worker {worker.name} could not start although nothing was wrong"


def every_worker_goes_on(history: History) -> Iterator[str]:
    """When all is quiet, each pool still takes jobs."""
    called_at = history.called_at
    if called_at is None:
        return
    working = {run.pool for run in history.runs if run.started >= called_at}
    for worker in history.workers:
        for pool in worker.pools:
            if worker.ending == "alive" and pool not in working:
                yield f"worker {worker.name} ({pool}) took no job when all was quiet"


def every_end_is_settled(history: History) -> Iterator[str]:
    """A worker that is not killed finds out of each task that ended whether that was written."""
    if not history.is_held:
        return
    lost_runs = LostRuns(history)
    for run in history.runs:
        if run.ended is None or run.outcome == "cancelled" or run.written or run.discarded:
            continue
        loss = lost_runs.loss(run)
        is_late = run.ended < history.seen_at - history.limits.write_within
        if is_late and (loss is None or not loss.is_death):
            yield f"job {run.job_id} ended, and its worker neither wrote nor discarded that: {_run(run)}"


def nothing_is_discarded_in_vain(history: History) -> Iterator[str]:
    """A worker discards an outcome only if it had lost the job, and another run counts."""
    if not history.is_held:
        return
    lost_runs = LostRuns(history)
    rows = {(row.id, row.token) for row in history.jobs}
    superseded = _superseded(history)
    for key, runs in _by_job(history).items():
        for run in runs:
            if run.discarded is None or run.token in superseded:
                continue
            if lost_runs.loss(run) is None:
                yield f"job {run.job_id} was discarded, and its worker had not lost it: {_run(run)}"
            if key not in rows and all(other.discarded is not None for other in runs):
                yield f"job {run.job_id} was discarded, and no other worker has ended it: {_runs(runs)}"


def no_end_is_written_twice(history: History) -> Iterator[str]:
    """At most one run of a job has completed it, without those whose write was not answered.

    A worker that was cut off counts them if the job is gone, also if another has completed it.
    """
    lost_runs, cut_offs = LostRuns(history), CutOffs(history)

    def is_unanswered(run: Run, others: Sequence[Run]) -> bool:
        if lost_runs.lost_batch(run) is not None:
            return True
        if history.is_held or run.written is None:
            return False
        later = [other for other in others if run.started < other.started < run.written]
        return any(cut_offs.between(run.worker, run.started, other.started) for other in later)

    for (job_id, token), runs in _by_job(history).items():
        written = [run for run in runs if run.written is not None and run.outcome == "end"]
        if len(written) > 1 and sum(not is_unanswered(run, written) for run in written) != 1:
            yield f"job {job_id} ({token}) was completed more than once: {_runs(runs)}"


def jobs_were_held(history: History) -> Iterator[str]:
    """A run with held batches has many; otherwise it shows nothing."""
    held = sum(run.held for run in history.runs)
    if history.is_held and held < history.least_held:
        yield f"{held} jobs were held, and {history.least_held} should have been"


RULES: list[Rule] = [
    every_committed_job_ran_or_waits,
    nothing_uncommitted_ran,
    no_job_ran_twice,
    no_queue_ran_two_jobs_at_once,
    queues_ran_in_order,
    no_limit_was_exceeded,
    no_queue_concurrency_was_exceeded,
    nothing_paused_was_taken,
    nothing_paused_was_started,
    no_key_fell_back,
    nothing_is_locked_by_the_dead,
    no_queue_is_held_for_nothing,
    what_ended_was_written,
    nothing_due_is_left_waiting,
    no_ready_job_waits_beside_a_free_slot,
    attempts_count_what_happened,
    every_kept_job_is_there,
    no_end_without_its_job,
    no_worker_ended_by_itself,
    every_worker_goes_on,
    every_end_is_settled,
    nothing_is_discarded_in_vain,
    no_end_is_written_twice,
    jobs_were_held,
]


# -- what the rules share ------------------------------------------------------------------------------------


def _excuses(history: History) -> CutOffs | LostRuns:
    return LostRuns(history) if history.is_held else CutOffs(history)


def _by_job(history: History) -> dict[tuple[int, str], list[Run]]:
    """Runs of each payload of each job, in the order in which they began."""
    found: dict[tuple[int, str], list[Run]] = defaultdict(list)
    for run in sorted(history.runs, key=lambda run: run.started):
        found[run.job_id, run.token].append(run)
    return found


def _by_token(history: History) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = defaultdict(list)
    for run in sorted(history.runs, key=lambda run: run.started):
        found[run.token].append(run)
    return found


def _next_of_key(history: History) -> dict[str, Added]:
    """For each token of a key the add that came after it."""
    last: dict[str, Added] = {}
    found: dict[str, Added] = {}
    for added in sorted(history.added, key=lambda added: added.number):
        if added.key is not None:
            if added.key in last:
                found[last[added.key].token] = added
            last[added.key] = added
    return found


def _superseded(history: History) -> set[str]:
    """Tokens whose key was used again: they need not run any more."""
    return set(_next_of_key(history))


def _live_pools(history: History) -> set[str]:
    return {pool for worker in history.workers if worker.ending == "alive" for pool in worker.pools}


def _over(history: History, run: Run) -> float:
    """When the task was not running any more, whatever had ended it."""
    if run.ended is not None:
        return run.ended
    ends = {worker.name: worker.ended for worker in history.workers}
    ended = ends.get(run.worker)
    return math.inf if ended is None else ended


def _failed_for_good(added: Added, row: JobRow, runs: list[Run]) -> bool:
    failed = sum(run.outcome == "failed" for run in runs)
    return (added.fails == "always" and failed >= row.max_attempts) or _is_given_up(row, runs)


def _is_given_up(row: JobRow, runs: list[Run]) -> bool:
    """Whether it was recovered so often that it is believed to kill its workers."""
    lost = sum(run.outcome != "failed" for run in runs)
    return (row.last_error or "").startswith("Given up: ") and lost > MAX_RECOVERIES


def _range(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} to {most}"


def _job(added: Added) -> str:
    marks = [f"key {added.key}" if added.key else "", f"queue {added.queue}" if added.queue else ""]
    more = ", ".join(filter(None, marks))
    return f"job {added.job_id} ({added.token}{', ' + more if more else ''})"


def _pause(pause: Paused) -> str:
    what = "everything" if pause.kind == "all" else f"{pause.kind} {pause.name}"
    return f"{what} was paused from {pause.began:.3f} to {pause.ended:.3f}"


def _run(run: Run) -> str:
    ended = "…" if run.ended is None else f"{run.ended:.3f}"
    return (
        f"{run.token} on {run.worker} from {run.started:.3f} to {ended} "
        f"({run.outcome or 'cut short'}, attempt {run.attempts})"
    )


def _runs(runs: list[Run]) -> str:
    return f"its runs: {'; '.join(_run(run) for run in runs)}" if runs else "it was never run"
