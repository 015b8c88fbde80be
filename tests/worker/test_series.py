"""The series of a held batch, and how many jobs one has; without worker, database and clock."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import force_setattr

from graphile_worker.values.job import Job
from graphile_worker.worker.held.policy import MOST_SKIPPED, Workload
from graphile_worker.worker.held.series import (
    CONTINUED,
    FEWEST_IN_SERIES,
    LONG,
    MOST_CONTINUED,
    HeldSeries,
    SeriesPolicy,
    SeriesSize,
)
from worker.test_fetch_plan import job as any_job

HOLD = 0.05
NOW = datetime.now(UTC)


def job(id_: int, queue: int) -> Job:
    made = any_job(queue=queue)
    force_setattr(made, "id", id_)
    return made


def series(*queues: int) -> HeldSeries:
    """With a job for each of these, by the id of its queue; and a queue without jobs."""
    jobs = [job(10 * queue + n, queue) for n, queue in enumerate(sorted(queues))]
    return HeldSeries([*sorted(set(queues)), 99], NOW, 0, jobs)


def work(run_time: float = 0.0001, *, concurrency: int = 1) -> Workload:
    return Workload(1000, run_time, 1000, 1000, lambda seconds: 1000, concurrency)


@pytest.fixture
def policy() -> SeriesPolicy:
    policy = SeriesPolicy(HOLD)
    policy.allow_from(0.0)
    return policy


def test_jobs_of_a_queue_follow_each_other() -> None:
    found = series(1, 1, 1, 2)
    first, second = found.first
    assert (first.job_queue_id, second.job_queue_id, found.waiting) == (1, 2, 2)
    following = found.next_after(first)
    assert following is not None
    assert (following.job_queue_id, found.waiting) == (1, 1)
    assert found.next_after(second) is None
    last = found.next_after(following)
    assert last is not None
    assert found.next_after(last) is None
    assert found.waiting == 0


def test_a_series_can_end_early() -> None:
    found = series(1, 1, 1, 2, 2)
    assert len(found.end(found.first[0])) == 2
    assert found.next_after(found.first[0]) is None
    assert found.waiting == 1
    assert [each.job_queue_id for each in found.end_all()] == [2]
    assert found.end_all() == []
    assert found.waiting == 0


def test_queues_that_no_job_keeps_are_unlocked() -> None:
    found = series(1, 2, 3)
    assert found.without([]) == [1, 2, 3, 99]
    assert found.without([found.first[1]]) == [1, 3, 99]


def test_few_queues_are_taken_with_many_jobs_of_each(policy: SeriesPolicy) -> None:
    assert policy.size(work(), 1000) == SeriesSize(queues=1000 // LONG, jobs=1000, longest=250)
    size = policy.size(work(concurrency=100), 1000)
    assert size is not None
    assert size.queues == 100  # so that every slot has one
    assert (size.of_each(100), size.of_each(2), size.of_each(3)) == (10, 250, 250)


def test_a_series_is_as_long_as_its_jobs_can_run_in_time(policy: SeriesPolicy) -> None:
    slow = policy.size(work(HOLD / 2 / FEWEST_IN_SERIES), 1000)
    assert slow is not None
    assert slow.longest == FEWEST_IN_SERIES
    assert policy.size(work(HOLD / FEWEST_IN_SERIES), 1000) is None
    policy.ran(100, HOLD)
    size = policy.size(work(), 1000)
    assert size is not None
    assert size.jobs == 50


def test_more_queues_are_taken_if_they_have_few_jobs(policy: SeriesPolicy) -> None:
    size = policy.size(work(), 1000)
    assert size is not None
    policy.found(size, size.queues, 4 * size.queues)
    more = policy.size(work(), 1000)
    assert more is not None
    assert more.queues == 250
    policy.found(more, more.queues, more.jobs)
    again = policy.size(work(), 1000)
    assert again is not None
    assert again.queues == size.queues


def test_batches_of_little_use_become_rare(policy: SeriesPolicy) -> None:
    size = policy.size(work(), 1000)
    assert size is not None
    skipped = []
    for _ in range(8):
        policy.found(size, size.queues, size.queues)
        skipped.append(next(n for n in range(1000) if policy.is_due(1.0, 0, 0)))
    assert skipped == sorted(skipped)
    assert skipped[-1] == MOST_SKIPPED


def test_a_fetch_looks_for_series_later_each_time_it_finds_none(policy: SeriesPolicy) -> None:
    after = []
    for _ in range(8):
        after.append(policy.continued)
        policy.tried()
    assert (after[0], after[1], after[-1]) == (CONTINUED, 2 * CONTINUED, MOST_CONTINUED)
    size = policy.size(work(), 1000)
    assert size is not None
    policy.found(size, 1, 100)
    assert policy.continued == CONTINUED
