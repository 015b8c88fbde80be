"""The buffer of jobs that wait for a slot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from graphile_worker import Job
from graphile_worker.worker.fetch.source import PrefetchedJobs
from support.properties import examples


def job(number: int, priority: int = 0, run_at: float = 0.0) -> Job:
    values: dict[str, Any] = dict.fromkeys(Job.__struct_fields__)
    return Job(**values | {"id": number, "priority": priority, "raw_run_at": run_at})


def ids(jobs: Sequence[Job]) -> list[int]:
    return [each.id for each in jobs]


def prefetched_of(*numbers: int) -> PrefetchedJobs:
    prefetched = PrefetchedJobs()
    prefetched.add([job(number) for number in numbers])
    return prefetched


@examples()
@given(
    batches=st.lists(st.lists(st.tuples(st.integers(-2, 2), st.floats(0, 3)), max_size=8), max_size=6),
)
def test_jobs_are_kept_in_order_whichever_batch_brought_them(batches: list[list[tuple[int, float]]]) -> None:
    prefetched = PrefetchedJobs()
    for batch in batches:
        prefetched.add([job(0, *place) for place in sorted(batch)])
    places = [(each.priority, each.raw_run_at) for each in prefetched]
    assert places == sorted(place for batch in batches for place in batch)


def test_among_equals_the_first_to_come_is_the_first_to_go() -> None:
    prefetched = prefetched_of(1, 2)
    prefetched.add([job(3)])
    assert ids(prefetched) == [1, 2, 3]
    prefetched.add([job(4, priority=-1), job(5)])
    assert ids(prefetched) == [4, 1, 2, 3, 5]


def test_lost_jobs_are_dropped_and_the_others_keep_their_order() -> None:
    prefetched = prefetched_of(1, 2, 3, 4)
    assert ids(prefetched.drop(lambda each: each.id % 2 == 0)) == [2, 4]
    assert ids(prefetched) == [1, 3]
    assert prefetched.drop(lambda each: False) == []
    assert ids(prefetched) == [1, 3]


def test_all_jobs_can_be_taken_at_once() -> None:
    prefetched = prefetched_of(1, 2, 3)
    assert ids(prefetched.take_all()) == [1, 2, 3]
    assert not prefetched
    assert prefetched.take_all() == []
