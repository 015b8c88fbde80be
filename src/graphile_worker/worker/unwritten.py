"""How much memory unwritten outcomes take, and how many of them make one statement.

Neither has a bound by itself: jobs may fail faster than the database takes the failures, and one batch job
may leave megabytes of payload behind.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..outcome import Failed, Finished

MAX_BATCH = 2000  # outcomes per statement
MAX_BATCH_BYTES = 16_000_000  # of texts and payloads per statement, unless a single one is larger
MAX_UNWRITTEN = 20_000  # completed jobs that wait to be written before no more jobs are taken
MAX_UNWRITTEN_BYTES = 64_000_000  # the same for payloads, errors and their texts
LIGHT = 4_096  # characters of a payload that are not counted: most have less, and to count takes time


def weight_of(finished: Finished) -> int:
    """About how many bytes it takes until it is written; 0 for what is counted by number alone."""
    size = len(finished.job.raw_payload)
    weight = size if size > LIGHT else 0
    if isinstance(finished.outcome, Failed):
        weight += finished.outcome.weight + len(finished.job.last_error or "")
    return weight


def batch_size(failures: Sequence[Finished], room: int) -> int:
    """How many of these failures, from the first, fit into one statement with this much room."""
    left = MAX_BATCH_BYTES
    for count, finished in enumerate(failures[:room]):
        left -= _sent_bytes(finished)
        if left < 0:
            return max(count, 1)
    return min(room, len(failures))


def _sent_bytes(finished: Finished) -> int:
    outcome = finished.outcome
    if not isinstance(outcome, Failed):
        return 0
    return len(outcome.message) + len(outcome.remaining_payload or "")
