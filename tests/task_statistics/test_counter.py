"""What a pool counts in memory, without a database."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphile_worker.history.statistics import bucket_of
from graphile_worker.metrics.minutes import (
    MINUTES_KEPT,
    SAMPLED,
    MinuteStatistics,
    StatisticsCounter,
    TaskTotals,
)
from graphile_worker.values.job import Job, wait_of
from graphile_worker.values.outcome import COMPLETED, Finished, Kept, Outcome, failed
from graphile_worker.values.retention import Retention
from support.cases import looped
from support.finished import a_job
from support.properties import examples

NOW = 1_800_000_030.0  # in the middle of a minute
MINUTE = 1_800_000_000


def job_of(job_id: int, *, task: str = "step", waited: float = 0.0) -> Job:
    return msgspec.structs.replace(a_job(job_id), task_identifier=task, raw_locked_at=waited)


def ended(
    job_id: int = 1,
    *,
    outcome: Outcome = COMPLETED,
    task: str = "step",
    took: float = 0.001,
    waited: float = 0.0,
) -> Finished:
    return Finished(job_of(job_id, task=task, waited=waited), outcome, "worker-1", took)


class Counting:
    """A counter whose clock the test sets."""

    def __init__(self, *tasks: str) -> None:
        self.time = NOW
        self.counter = StatisticsCounter(dict.fromkeys(tasks or ("step",)), lambda: self.time)

    def count(self, batch: Sequence[Finished], final: AbstractSet[int] = frozenset()) -> None:
        has_failures = any(finished.outcome is not COMPLETED for finished in batch)
        self.counter.count(batch, final, has_failures=has_failures)

    def take(self) -> dict[tuple[int, str], TaskTotals]:
        return {(minute, task): totals for minute, task, totals in self.counter.take()}

    def only(self) -> TaskTotals:
        (totals,) = self.take().values()
        return totals


def test_completed_and_failed_jobs_are_counted_apart() -> None:
    counting = Counting()
    error = failed(ValueError("no"))
    counting.count([ended(1), ended(2, outcome=error), ended(3, outcome=error), ended(4)], final={3})
    found = counting.only()
    assert (found.completed, found.failed, found.permanently_failed) == (2, 1, 1)
    assert sum(found.run_times) == sum(found.wait_times) == 4


def test_jobs_that_are_written_one_by_one_are_counted_like_a_batch() -> None:
    error = failed(ValueError("no"))
    jobs = [
        ended(1, took=0.0, waited=3.0),
        ended(2, took=0.2, outcome=error),
        ended(3, took=1e5, waited=0.01, outcome=error),
    ]
    together, apart = Counting(), Counting()
    together.count(jobs, final={3})
    for job in jobs:
        apart.count([job], final={3})
    one, other = together.only(), apart.only()
    for name in TaskTotals.__slots__:
        assert getattr(one, name) == getattr(other, name), name


def test_each_task_has_statistics_of_its_own() -> None:
    counting = Counting("one", "two")
    counting.count([ended(1, task="one"), ended(2, task="two", took=2.0), ended(3, task="two", took=4.0)])
    found = counting.take()
    assert {task: totals.completed for (_, task), totals in found.items()} == {"one": 1, "two": 2}
    assert found[MINUTE, "two"].run_seconds == 6.0
    assert found[MINUTE, "two"].longest == 4.0


@examples()
@given(st.lists(st.floats(min_value=0, max_value=1e4), min_size=1, max_size=1000))
def test_a_large_batch_is_sampled_but_its_counts_are_exact(times: list[float]) -> None:
    counting = Counting()
    counting.count([ended(number, took=time) for number, time in enumerate(times)])
    found = counting.only()
    assert found.completed == sum(found.run_times) == sum(found.wait_times) == len(times)
    assert found.run_seconds == pytest.approx(math.fsum(times))
    assert found.longest == max(times)


def test_a_small_batch_is_counted_in_full() -> None:
    counting = Counting()
    times = [0.0001 * 2**number for number in range(SAMPLED)]
    counting.count([ended(number, took=time, waited=time) for number, time in enumerate(times)])
    found = counting.only()
    expected = [0] * len(found.run_times)
    for time in times:
        expected[bucket_of(time)] += 1
    assert found.run_times == found.wait_times == expected
    assert found.wait_seconds == pytest.approx(sum(times))


def test_samples_reach_every_job_of_equal_batches_in_turn() -> None:
    """A job at a fixed place in each batch is neither always sampled nor never."""
    counting = Counting()
    slow = 10.0
    for _ in range(200):
        counting.count([ended(number, took=slow if number == 7 else 0.001) for number in range(10 * SAMPLED)])
    found = counting.only()
    assert found.run_times[bucket_of(slow)] == pytest.approx(200, rel=0.2)


def test_a_minute_ends_by_the_clock() -> None:
    counting = Counting()
    counting.count([ended()])
    counting.time += 60
    counting.count([ended()])
    counting.time -= 3600  # the clock is set back
    counting.count([ended()])
    assert sorted(minute for minute, _ in counting.take()) == [MINUTE - 3540, MINUTE, MINUTE + 60]


def test_what_was_taken_is_counted_no_more() -> None:
    counting = Counting()
    counting.count([ended()])
    assert counting.only().completed == 1
    assert counting.counter.is_empty
    counting.count([ended(), ended()])
    assert counting.only().completed == 2


def test_what_could_not_be_written_is_added_to_what_came_since() -> None:
    counting = Counting()
    counting.count([ended(took=3.0)])
    unwritten = counting.counter.take()
    counting.count([ended(took=1.0)])
    counting.counter.put_back(unwritten)
    found = counting.only()
    assert (found.completed, found.run_seconds, found.longest) == (2, 4.0, 3.0)
    assert sum(found.run_times) == 2


def test_statistics_that_cannot_be_written_do_not_pile_up() -> None:
    counting = Counting()
    old = [
        MinuteStatistics(MINUTE - 60 * number, "step", TaskTotals()) for number in range(10 * MINUTES_KEPT)
    ]
    counting.counter.put_back(old)
    assert len(counting.take()) == MINUTES_KEPT + 1


def test_nothing_is_counted_after_it_was_switched_off() -> None:
    counting = Counting()
    counting.count([ended()])
    counting.counter.switch_off()
    counting.count([ended()])
    assert counting.counter.is_empty


@pytest.fixture
def restless_threads() -> Iterator[None]:
    """Threads take turns much more often than usual."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("restless_threads")
def test_no_job_is_lost_between_two_threads() -> None:
    """The heartbeat takes in a thread of its own."""
    counting = Counting()
    is_over = threading.Event()
    taken: list[int] = []

    def take_all() -> None:
        while not is_over.is_set():
            taken.extend(totals.completed for totals in counting.take().values())

    thread = threading.Thread(target=take_all)
    thread.start()
    batch = [ended(number) for number in range(10)]
    for _ in range(5000):
        counting.count(batch)
    is_over.set()
    thread.join()
    taken.extend(totals.completed for totals in counting.take().values())
    assert sum(taken) == 50_000


@looped(
    ("run_at", "created_at", "locked_at", "waited"),
    [
        (100.0, None, 103.0, 3.0),
        (100.0, 90.0, 103.0, 3.0),
        (0.0, 100.0, 103.0, 3.0),  # added with a run_at in the past
        (-math.inf, 100.0, 103.0, 3.0),
        (104.0, None, 103.0, 0.0),  # clocks differ
        (-math.inf, None, 103.0, 0.0),
        (100.0, None, None, 0.0),
    ],
)
def test_a_job_waits_from_the_time_when_it_could_run(
    run_at: float, created_at: float | None, locked_at: float | None, waited: float
) -> None:
    job = msgspec.structs.replace(
        a_job(), raw_run_at=run_at, raw_created_at=created_at, raw_locked_at=locked_at
    )
    assert wait_of(job) == waited


@pytest.mark.parametrize("others", [0, 3])
def test_a_kept_job_is_a_completed_one(others: int) -> None:
    counting = Counting()
    failures = [ended(2 + number, outcome=failed(ValueError())) for number in range(others)]
    counting.count([ended(1, outcome=Kept(retention=Retention(60.0))), *failures], final={2})
    (totals,) = counting.take().values()
    assert (totals.completed, totals.failed + totals.permanently_failed) == (1, others)


def test_a_clock_that_is_set_does_not_move_the_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = StatisticsCounter({"step": None})
    before = counter.now()
    monkeypatch.setattr("time.time", lambda: 1.0)
    assert 0 <= counter.now() - before < 600
    assert not counter.is_active
    counter.count([ended()], frozenset(), has_failures=False)
    assert counter.is_active
