"""Percentiles from histograms, compared with exact ones."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphile_worker.history.statistics import BUCKETS, bucket_of, limits_of, percentile
from support.properties import examples

TIMES = st.floats(min_value=0, max_value=1e5, allow_nan=False)


def counted(times: list[float]) -> list[int]:
    counts = [0] * BUCKETS
    for time in times:
        counts[bucket_of(time)] += 1
    return counts


def exact(times: list[float], share: float) -> float:
    """The smallest time that at least this share of all do not exceed."""
    return sorted(times)[max(math.ceil(share * len(times)), 1) - 1]


@examples()
@given(TIMES)
def test_a_time_is_within_the_limits_of_its_bucket(time: float) -> None:
    bucket = bucket_of(time)
    begin, end = limits_of(bucket)
    assert begin <= time
    assert time < end or bucket == BUCKETS - 1


def test_buckets_follow_each_other_without_gaps() -> None:
    assert limits_of(0)[0] == 0
    for bucket in range(1, BUCKETS):
        assert limits_of(bucket)[0] == limits_of(bucket - 1)[1]


@examples()
@given(st.lists(TIMES, min_size=1, max_size=200), st.floats(min_value=0.001, max_value=1))
def test_a_percentile_is_in_the_bucket_of_the_exact_one(times: list[float], share: float) -> None:
    found = percentile(counted(times), share, max(times))
    assert found is not None
    begin, end = limits_of(bucket_of(exact(times, share)))
    assert begin <= found <= end
    assert found <= max(times)


@examples()
@given(st.lists(TIMES, min_size=1, max_size=50))
def test_percentiles_grow_with_their_share(times: list[float]) -> None:
    counts = counted(times)
    found = [percentile(counts, share / 20, max(times)) or 0.0 for share in range(1, 21)]
    assert found == sorted(found)


@examples()
@given(st.lists(TIMES, min_size=1, max_size=50), st.lists(TIMES, min_size=1, max_size=50))
def test_histograms_can_be_added(one: list[float], other: list[float]) -> None:
    added = [a + b for a, b in zip(counted(one), counted(other), strict=True)]
    assert added == counted(one + other)


@pytest.mark.parametrize("share", [0.5, 0.95, 0.99])
def test_usual_distributions_are_met_closely(share: float) -> None:
    """Interpolation makes more of a bucket than its limits say."""
    dice = random.Random(7)
    times = [dice.lognormvariate(-4, 1) for _ in range(20_000)]
    found = percentile(counted(times), share, max(times))
    assert found == pytest.approx(exact(times, share), rel=0.2)


def test_nothing_has_no_percentile() -> None:
    assert percentile([], 0.5) is None
    assert percentile([0, 0], 0.5) is None
