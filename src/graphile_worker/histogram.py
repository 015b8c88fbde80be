"""Histograms of times, a factor of two from bucket to bucket: small, and they can be added up. Pure.

Bucket 0 counts times below 1/8192 s. Bucket n counts times from 2**(n-14) s up to twice that; the last one
has no upper limit. Percentiles are interpolated within a bucket, so they are off by less than its width.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import frexp

BUCKETS = 28
"""The last one begins at 2**13 s, about two hours."""
SHIFT = 13
_SMALLEST = 2.0**-SHIFT  # seconds, the upper limit of bucket 0


def bucket_of(seconds: float) -> int:
    """The bucket that counts this time."""
    bucket = frexp(seconds)[1] + SHIFT if seconds else 0
    return 0 if bucket < 0 else bucket if bucket < BUCKETS else BUCKETS - 1


def limits_of(bucket: int) -> tuple[float, float]:
    """Where a bucket begins and ends, in seconds; the last one is taken to end as the others do."""
    if bucket == 0:
        return 0.0, _SMALLEST
    begin = _SMALLEST * 2.0 ** (bucket - 1)
    return begin, 2 * begin


def percentile(counts: Sequence[int], share: float, longest: float | None = None) -> float | None:
    """The time that this share (0 to 1) of all counted ones do not exceed; None if there are none.

    `longest`: the exact maximum, if known. No percentile exceeds it.
    """
    total = sum(counts)
    if not total:
        return None
    rank = share * total
    below = 0
    for bucket, count in enumerate(counts):
        if count and below + count >= rank:
            found = _within(bucket, (rank - below) / count)
            return found if longest is None else min(found, longest)
        below += count
    return longest  # only if rounding put the rank above the total


def _within(bucket: int, share: float) -> float:
    """Interpolated on a logarithmic scale, as the buckets are; bucket 0 begins at zero and is linear."""
    begin, end = limits_of(bucket)
    return end * share if bucket == 0 else begin * 2.0**share
