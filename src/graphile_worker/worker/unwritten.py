"""Limits the memory of unwritten outcomes and the size of one write.

Without limits, jobs could fail faster than the database takes the failures, and one batch job can leave
megabytes of payload to be written.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..outcome import Failed, Finished, Kept, Snoozed

MAX_BATCH = 2000  # outcomes per statement
MAX_BATCH_BYTES = 16_000_000  # of messages and payloads per statement, unless a single one is larger
MAX_UNWRITTEN = 20_000  # completed jobs; beyond that the pool takes no more jobs
MAX_UNWRITTEN_BYTES = 64_000_000  # the same for payloads, errors and their texts
KEPT_WEIGHT = 3_000  # approximate bytes of a kept end without its result
LIGHT = 4_096  # characters; smaller payloads, as most are, are not counted, to save time


def weight_of(finished: Finished) -> int:
    """The approximate bytes of memory it holds until it is written; 0 if only the number counts."""
    size = len(finished.job.raw_payload)
    weight = size if size > LIGHT else 0
    if isinstance(finished.outcome, Failed):
        weight += finished.outcome.weight + len(finished.job.last_error or "")
    elif isinstance(finished.outcome, Kept):
        weight += KEPT_WEIGHT + _texts_of(finished.outcome)
    elif isinstance(finished.outcome, Snoozed):
        weight += KEPT_WEIGHT + len(finished.outcome.remaining_payload or "")
    return weight


def batch_size(waiting: Sequence[Finished], room: int) -> int:
    """How many of these outcomes, from the first, go into one statement that has room for `room` more."""
    left = MAX_BATCH_BYTES
    for count, finished in enumerate(waiting[:room]):
        left -= _sent_bytes(finished)
        if left < 0:
            return max(count, 1)
    return min(room, len(waiting))


def _sent_bytes(finished: Finished) -> int:
    outcome = finished.outcome
    if isinstance(outcome, Kept):
        return _texts_of(outcome)
    if isinstance(outcome, Snoozed):
        return len(outcome.remaining_payload or "")
    if not isinstance(outcome, Failed):
        return 0
    return len(outcome.message) + len(outcome.traceback) + len(outcome.remaining_payload or "")


def _texts_of(outcome: Kept) -> int:
    return len(outcome.raw_result or "") + len(outcome.raw_payload or "")
