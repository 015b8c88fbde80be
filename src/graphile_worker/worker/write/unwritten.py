"""Unwritten: outcomes that wait for a write, by kind. Pure.

It decides which of them one statement writes, and when there are too many for more jobs to be taken: without
that *back-pressure* jobs could fail faster than the database takes the failures, and one batch job can leave
megabytes of payload to be written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...database.statements.fetch import NO_CEILING
from ...values.outcome import (
    Cancelled,
    Completed,
    Deleted,
    Expired,
    Failed,
    Finished,
    Interrupted,
    Kept,
    Snoozed,
    queues_of,
)

MAX_OUTCOMES = 2000  # outcomes per statement
MAX_WRITE_BYTES = 16_000_000  # of messages and payloads per statement, unless a single one is larger
MAX_UNWRITTEN = 20_000  # completed jobs; beyond that the pool takes no more jobs
MAX_UNWRITTEN_BYTES = 64_000_000  # the same for payloads, errors and their texts
KEPT_WEIGHT = 3_000  # approximate bytes of a kept job without its result
LIGHT = 4_096  # characters; smaller payloads, as most are, are not counted, to save time

ROW_STAYS = (Failed, Snoozed)
ROW_GOES = (Completed, Deleted)
END_IS_KEPT = (Kept, Expired)


class Unwritten:
    """The outcomes of one pool that are not written yet."""

    def __init__(self) -> None:
        self._completed: list[Finished] = []
        self._kept: dict[object, list[Finished]] = {}
        """By how they are kept: one statement keeps all of them alike."""
        self._failed: list[Finished] = []
        self._interrupted: list[Finished] = []
        self._cancelled: list[Finished] = []
        self._weight = 0  # bytes, as far as they are counted
        self.not_deleted = 0
        """How many outcomes so far were more than the end of a held batch can write."""

    def put(self, finished: Finished) -> bool:
        """Add an outcome; whether there may be too many now, see `is_too_much`."""
        outcome = finished.outcome
        if type(outcome) is Completed:
            self._completed.append(finished)
            if len(finished.job.raw_payload) <= LIGHT and len(self._completed) <= MAX_UNWRITTEN:
                return False
        elif isinstance(outcome, ROW_STAYS):
            if not is_only_retried(finished):
                self.not_deleted += 1
            self._failed.append(finished)
        elif isinstance(outcome, END_IS_KEPT):
            self.not_deleted += type(outcome) is Expired
            self._kept.setdefault(_like(outcome), []).append(finished)
        elif isinstance(outcome, Cancelled):
            self._cancelled.append(finished)
        else:
            self._interrupted.append(finished)
            return False
        self._weight += weight_of(finished)
        return True

    def requeue(self, batch: Sequence[Finished]) -> None:
        """Put outcomes that were not written in front of newer ones; they are still counted."""
        for finished in reversed(batch):
            if isinstance(finished.outcome, END_IS_KEPT):
                self._kept.setdefault(_like(finished.outcome), []).insert(0, finished)
        waiting = {
            (Completed,): self._completed,
            ROW_STAYS: self._failed,
            (Interrupted,): self._interrupted,
            (Cancelled,): self._cancelled,
        }
        for kinds, unwritten in waiting.items():
            unwritten[:0] = [finished for finished in batch if type(finished.outcome) in kinds]

    def written(self, part: Sequence[Finished]) -> None:
        """Count these no longer."""
        if self._weight:
            self._weight -= sum(map(weight_of, part))

    # -- how many ------------------------------------------------------------------------------------------

    @property
    def is_too_much(self) -> bool:
        """Whether the pool should take no more jobs."""
        return self._weight > MAX_UNWRITTEN_BYTES or len(self._completed) > MAX_UNWRITTEN

    @property
    def has_room(self) -> bool:
        """Whether it may take jobs again."""
        return self._weight <= MAX_UNWRITTEN_BYTES // 2 and len(self._completed) <= MAX_UNWRITTEN // 2

    @property
    def is_urgent(self) -> bool:
        """Whether jobs have ended early: no batch delay applies to them."""
        return bool(self._interrupted or self._cancelled)

    @property
    def has_completed(self) -> bool:
        return bool(self._completed or self._kept)

    @property
    def has_failed(self) -> bool:
        return bool(self._failed)

    @property
    def frees_queues(self) -> bool:
        """Whether one of the jobs is in a named queue."""
        return any(map(queues_of, self._all()))

    @property
    def best_queued(self) -> int:
        """The best priority of jobs of named queues."""
        jobs = (finished.job for some in self._all() for finished in some)
        return min((job.priority for job in jobs if job.job_queue_id is not None), default=NO_CEILING)

    def deleting(self) -> Iterator[Finished]:
        """Those whose write deletes the row of the job."""
        for some in (self._completed, *self._kept.values(), self._cancelled):
            yield from (finished for finished in some if isinstance(finished.outcome, ROW_GOES))

    def _all(self) -> tuple[list[Finished], ...]:
        return self._completed, *self._kept.values(), self._failed, self._interrupted, self._cancelled

    # -- the next statement --------------------------------------------------------------------------------

    def next_write(self) -> list[Finished]:
        """Take what the next statement writes; empty if there is nothing."""
        if self._interrupted:
            return self._next_interrupted()
        if self._cancelled:
            batch, self._cancelled = self._cancelled[:MAX_OUTCOMES], self._cancelled[MAX_OUTCOMES:]
            return batch
        batch, self._completed = self._completed[:MAX_OUTCOMES], self._completed[MAX_OUTCOMES:]
        if self._kept:
            batch += self._next_kept(MAX_OUTCOMES - len(batch))
        if self._failed:
            count = write_size(self._failed, MAX_OUTCOMES - len(batch))
            batch += self._failed[:count]
            self._failed = self._failed[count:]
        return batch

    def _next_kept(self, room: int) -> list[Finished]:
        """Those that are kept like the first, as many as one statement takes."""
        like, waiting = next(iter(self._kept.items()))
        count = write_size(waiting, room)
        del self._kept[like]
        if count < len(waiting):
            self._kept[like] = waiting[count:]  # behind those that are kept otherwise
        return waiting[:count]

    def _next_interrupted(self) -> list[Finished]:
        """Those with the same note as the first: one statement writes one note."""
        note = _note(self._interrupted[0])
        batch: list[Finished] = []
        others: list[Finished] = []
        for finished in self._interrupted:
            is_like_first = len(batch) < MAX_OUTCOMES and _note(finished) == note
            (batch if is_like_first else others).append(finished)
        self._interrupted = others
        return batch


def is_only_retried(finished: Finished) -> bool:
    """Whether the job failed and is retried as it is: the end of a held batch can write that."""
    job, outcome = finished.job, finished.outcome
    return (
        isinstance(outcome, Failed)
        and outcome.given_up is None
        and outcome.remaining_payload is None
        and job.attempts < job.max_attempts
    )


def weight_of(finished: Finished) -> int:
    """The approximate bytes of memory it holds until it is written; 0 if only the number counts."""
    job, outcome = finished.job, finished.outcome
    size = len(job.raw_payload)
    weight = size if size > LIGHT else 0
    if isinstance(outcome, Kept):
        weight += KEPT_WEIGHT + _texts_of(outcome)
    elif isinstance(outcome, Failed):
        weight += outcome.weight + len(job.last_error or "")
    elif isinstance(outcome, Snoozed):
        weight += KEPT_WEIGHT + len(outcome.remaining_payload or "")
    return weight


def write_size(waiting: Sequence[Finished], room: int) -> int:
    """How many of these outcomes, from the first, go into one statement that has room for `room` more."""
    left = MAX_WRITE_BYTES
    for count, finished in enumerate(waiting[:room]):
        left -= _sent_bytes(finished)
        if left < 0:
            return max(count, 1)
    return min(room, len(waiting))


def _sent_bytes(finished: Finished) -> int:
    outcome = finished.outcome
    if isinstance(outcome, Kept):
        return _texts_of(outcome)
    if isinstance(outcome, Failed):
        return len(outcome.message) + len(outcome.traceback) + len(outcome.remaining_payload or "")
    return len(outcome.remaining_payload or "") if isinstance(outcome, Snoozed) else 0


def _texts_of(outcome: Kept) -> int:
    result, payload = outcome.raw_result, outcome.raw_payload
    return (0 if result is None else len(result)) + (0 if payload is None else len(payload))


def kept_alike(finished: Sequence[Finished]) -> list[list[Finished]]:
    """Completed jobs that are kept, by how: one statement keeps all of them alike."""
    groups: dict[object, list[Finished]] = {}
    for each in finished:
        if isinstance(each.outcome, Kept):
            groups.setdefault(_like(each.outcome), []).append(each)
    return list(groups.values())


def _like(outcome: Kept | Expired) -> object:
    """The same for outcomes that one statement can keep."""
    return type(outcome), outcome.retention if isinstance(outcome, Kept) else outcome._retention


def _note(finished: Finished) -> str:
    """The last_error of an interrupted job."""
    return finished.outcome.message if isinstance(finished.outcome, Interrupted) else ""
