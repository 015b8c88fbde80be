"""When a local queue pauses, and what ends the pause early."""

from __future__ import annotations

import math
from typing import Any

import pytest

from graphile_worker.values.option_groups import RefetchDelayOptions
from graphile_worker.worker.fetch.local_queue import RefetchDelay


def make(share: float = 0.5, size: int = 10, **options: Any) -> RefetchDelay:
    return RefetchDelay(
        RefetchDelayOptions(duration=2.0, **options),
        size,
        uniform=lambda low, high: high,
        share=lambda: share,
    )


@pytest.mark.compat("LQ3")
@pytest.mark.parametrize(
    ("threshold", "found", "full", "pauses"),
    [
        (0, 0, False, True),
        (0, 1, False, False),
        (3, 3, False, True),
        (3, 4, False, False),
        (10, 10, True, False),
    ],
)
def test_it_pauses_after_a_fetch_that_found_few_jobs(
    threshold: int, found: int, full: bool, pauses: bool
) -> None:
    delay = make(threshold=threshold)
    assert delay.starts_after(found, full=full) == (3.0 if pauses else None)
    assert delay.active is pauses


@pytest.mark.compat("LQ3")
def test_a_random_share_of_the_largest_threshold_ends_it() -> None:
    delay = make(share=0.5, size=10)  # 5 times the size is the largest by default
    delay.fetch_begins()
    delay.starts_after(0, full=False)
    assert delay.abort_threshold == 25
    assert not delay.announced(24)
    assert delay.announced(1)


@pytest.mark.compat("LQ3")
def test_what_was_announced_during_the_fetch_counts() -> None:
    delay = make(share=1.0, max_abort_threshold=4)
    delay.announced(100)  # before the fetch: it will be found
    delay.fetch_begins()
    assert not delay.announced(3)
    delay.starts_after(0, full=False)
    assert delay.announced(1)


@pytest.mark.compat("LQ3")
def test_a_threshold_of_nothing_never_ends_it() -> None:
    delay = make(share=0.0)
    delay.starts_after(0, full=False)
    assert delay.abort_threshold == math.inf
    assert not delay.announced(10**6)


def test_a_fetch_requested_during_the_pause_is_remembered_once() -> None:
    delay = make()
    delay.starts_after(0, full=False)
    delay.fetch_wanted = True
    assert delay.ended()
    assert not delay.ended()
