"""The fetch plan, played through without a server: which statements a fetch sends, and what it learns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from graphile_worker import Job
from graphile_worker.queries.fetch import MANY_PRIORITIES, Ranges
from graphile_worker.worker.fetch_plan import (
    ANNOUNCED,
    HELD,
    LIST_AGAIN_AFTER,
    LIST_PRIORITIES,
    MAY_QUEUES_BE_NEXT,
    PLAIN,
    SKIPPED,
    WHOLE,
    Demand,
    Fetch,
    FetchPlan,
)
from graphile_worker.worker.watermarks import (
    FROM_START,
    FULL_FETCH_AFTER,
    FULL_FETCH_AFTER_ANNOUNCED,
    HIGHEST,
    LOWEST,
    SLACK,
)

LIMIT = 5
FAST = 0.001
SLOW = 1.0
SERVER_TIME = 1_000_000.0  # seconds since 1970, when the test's clock shows 0
TASKS = {1: "ours"}
PLAIN_IN_RANGES, WHOLE_IN_RANGES = "plain in ranges", "whole in ranges"


def job(priority: int = 0, run_at: float = 0.0, queue: int | None = None) -> Job:
    values: dict[str, Any] = dict.fromkeys(Job.__struct_fields__)
    values |= {"id": 1, "priority": priority, "raw_run_at": run_at, "job_queue_id": queue}
    return Job(**values)


class Play:
    """A plan with a clock, and a database whose answers a test sets."""

    def __init__(self, **options: Any) -> None:
        self.plan = FetchPlan(**options)
        self.now = 100.0
        self.found: dict[str, Sequence[Job]] = {}
        self.may_queues_be_next = False
        self.priorities: list[int] = [0]
        self.seconds: dict[str, float] = {}
        self.fails: set[str] = set()
        self.sent: list[str] = []
        self.ranges: Ranges | None = None
        self.jobs: Sequence[Job] = ()

    def fetch(self, *, tasks: Mapping[int, str] = TASKS, after: float = 0.0, **demand: Any) -> list[str]:
        """The statements of one fetch, by their names."""
        self.now += after
        self.sent = []
        steps = self.plan.fetch(Demand(LIMIT, tasks, **demand), self.now)
        step = next(steps)
        try:
            while True:
                if self._name(step) in self.fails:
                    step = steps.throw(ConnectionError("as asked"))
                else:
                    step = steps.send((self._answer(step), self.now))
        except StopIteration as end:
            self.jobs = end.value
        return self.sent

    def _name(self, step: Any) -> str:
        name = step.kind if isinstance(step, Fetch) else step
        self.sent.append(f"{name} in ranges" if isinstance(step, Fetch) and step.ranges is not None else name)
        self.now += self.seconds.get(name, FAST)
        return name

    def _answer(self, step: Any) -> Any:
        if step == MAY_QUEUES_BE_NEXT:
            return self.may_queues_be_next
        if step == LIST_PRIORITIES:
            return self.priorities, SERVER_TIME + self.now
        assert step.limit == LIMIT
        self.ranges = step.ranges
        return self.found.get(step.kind, ())


@pytest.fixture
def play() -> Play:
    return Play()


@pytest.fixture
def slow(play: Play) -> Play:
    """A plan whose last fetch found nothing and took a second, at priorities 0 and 3."""
    play.priorities = [0, 3]
    play.seconds[PLAIN] = SLOW
    assert play.fetch() == [PLAIN, MAY_QUEUES_BE_NEXT, LIST_PRIORITIES]
    play.seconds[PLAIN] = FAST
    return play


# -- full fetches ------------------------------------------------------------------------------------------


def test_an_idle_worker_finds_an_announced_job_with_one_statement(play: Play) -> None:
    play.found[ANNOUNCED] = [job()]
    for _ in range(3):
        assert play.fetch(announced=True) == [ANNOUNCED]
        assert play.jobs == play.found[ANNOUNCED]


def test_without_an_announced_job_the_fast_path_is_not_tried(play: Play) -> None:
    play.found = {ANNOUNCED: [job()], PLAIN: [job(3)]}
    assert play.fetch() == [PLAIN]
    assert play.jobs == play.found[PLAIN]


def test_a_fast_path_that_finds_nothing_is_skipped_for_a_while(play: Play) -> None:
    play.found[PLAIN] = [job()]
    assert play.fetch(announced=True) == [ANNOUNCED, PLAIN]
    for _ in range(SKIPPED):
        assert play.fetch(announced=True) == [PLAIN]
        assert play.fetch() == [PLAIN]  # does not count
    play.found = {ANNOUNCED: [job()]}
    assert play.fetch(announced=True) == [ANNOUNCED]
    assert play.fetch(announced=True) == [ANNOUNCED]


def test_nothing_to_do_takes_two_statements(play: Play) -> None:
    assert play.fetch() == [PLAIN, MAY_QUEUES_BE_NEXT]
    assert list(play.jobs) == []


def test_when_named_queues_are_next_only_the_whole_statement_is_sent_for_a_while(play: Play) -> None:
    play.may_queues_be_next = True
    play.found[WHOLE] = [job(queue=1)]
    assert play.fetch(announced=True) == [ANNOUNCED, PLAIN, MAY_QUEUES_BE_NEXT, WHOLE]
    assert play.jobs == play.found[WHOLE]
    for n in range(SKIPPED - 1):
        assert play.fetch(announced=n % 2 == 0) == [WHOLE]
    play.may_queues_be_next = False
    assert play.fetch() == [PLAIN, MAY_QUEUES_BE_NEXT]


def test_without_indexes_for_queues_only_the_whole_statement_is_sent() -> None:
    play = Play(has_queue_indexes=False)
    for n in range(3 * SKIPPED):
        assert play.fetch(announced=n % 2 == 0) == [WHOLE]


def test_an_error_of_the_database_ends_the_fetch(play: Play) -> None:
    play.fails = {MAY_QUEUES_BE_NEXT}
    with pytest.raises(ConnectionError, match="as asked"):
        play.fetch()
    play.fails = set()
    assert play.fetch() == [PLAIN, MAY_QUEUES_BE_NEXT]


# -- held batches ------------------------------------------------------------------------------------------


def test_jobs_that_may_be_held_take_one_statement(play: Play) -> None:
    play.found[HELD] = [job()]
    assert play.fetch(may_hold=True) == [HELD]
    assert play.fetch(may_hold=True, announced=True) == [HELD]
    assert play.jobs == play.found[HELD]


def test_what_cannot_be_held_is_locked_by_the_same_fetch(play: Play) -> None:
    play.found = {HELD: None, PLAIN: [job()]}  # type: ignore[dict-item]
    assert play.fetch(may_hold=True) == [HELD, PLAIN]
    assert play.jobs == play.found[PLAIN]


def test_what_no_batch_has_found_is_not_searched_for_again(play: Play) -> None:
    play.found[PLAIN] = [job()]
    assert play.fetch(may_hold=True) == [HELD, MAY_QUEUES_BE_NEXT]


def test_nothing_is_held_for_a_while_after_named_queues_were_next(play: Play) -> None:
    play.may_queues_be_next = True
    play.found[WHOLE] = [job(queue=1)]
    assert play.fetch(may_hold=True) == [HELD, MAY_QUEUES_BE_NEXT, WHOLE]
    for _ in range(SKIPPED - 1):
        assert play.fetch(may_hold=True) == [WHOLE]
    assert play.fetch(may_hold=True)[0] == HELD


def test_jobs_above_watermarks_are_held_too(slow: Play) -> None:
    slow.found[HELD] = [job()]
    assert slow.fetch(may_hold=True) == ["held in ranges"]
    slow.found = {}
    assert slow.fetch(may_hold=True) == ["held in ranges", MAY_QUEUES_BE_NEXT]


def test_nothing_is_held_while_there_are_wide_queues(slow: Play) -> None:
    slow.plan.forget_watermarks()
    slow.plan.is_wide = True
    assert slow.fetch(may_hold=True) == ["wide"]


def test_a_slow_fetch_of_held_jobs_sets_watermarks(play: Play) -> None:
    play.seconds[HELD] = SLOW
    play.found[HELD] = [job()]
    assert play.fetch(may_hold=True) == [HELD, LIST_PRIORITIES]
    assert play.fetch(may_hold=True)[0] == "held in ranges"


# -- watermarks --------------------------------------------------------------------------------------------


def test_after_a_slow_fetch_the_next_ones_start_at_watermarks(slow: Play) -> None:
    began = slow.now - SLOW - 2 * FAST
    assert slow.fetch() == [PLAIN_IN_RANGES, MAY_QUEUES_BE_NEXT]
    seen = pytest.approx(SERVER_TIME + began - SLACK)
    assert slow.ranges == (
        [LOWEST, 0, 1, 3, 4],
        [-1, 0, 2, 3, HIGHEST],
        [FROM_START, seen, FROM_START, seen, FROM_START],
    )


def test_watermarks_go_by_the_time_of_the_worker_if_that_is_used(play: Play) -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    play.seconds[PLAIN] = SLOW
    play.fetch(now=now)
    play.fetch(now=now)
    assert play.ranges is not None
    assert play.ranges[2][1] == now.timestamp() - SLACK


def test_a_full_batch_says_nothing_about_later_jobs(play: Play) -> None:
    play.priorities = [0, 3]
    play.seconds[PLAIN] = SLOW
    play.found[PLAIN] = [job(0, run_at=7.0)] * LIMIT
    assert play.fetch() == [PLAIN, LIST_PRIORITIES]
    play.fetch()
    assert play.ranges is not None
    assert play.ranges[2] == [FROM_START, 7.0, FROM_START, FROM_START, FROM_START]


def test_a_batch_that_may_have_left_some_says_nothing_about_later_jobs(slow: Play) -> None:
    """As a fetch by id does, which reads a limited number of ids."""
    slow.fetch()
    assert slow.ranges is not None
    seen = slow.ranges[2][1]
    slow.found[HELD] = [job(0, run_at=seen + 4)]
    slow.plan.has_left_some = True
    slow.fetch(may_hold=True, after=10)
    slow.fetch(may_hold=True)
    assert slow.ranges[2][1] == seen + 4
    slow.plan.has_left_some = False
    slow.fetch(may_hold=True)
    slow.fetch(may_hold=True)
    assert slow.ranges[2][1] > seen + 5


def test_a_fetch_that_was_slow_because_of_its_jobs_sets_no_watermarks(play: Play) -> None:
    play.found[PLAIN] = [job()] * 1000
    play.seconds[PLAIN] = 0.2
    assert play.fetch() == [PLAIN]
    assert play.fetch() == [PLAIN]


def test_a_full_fetch_is_due_again_after_a_multiple_of_what_it_cost(slow: Play) -> None:
    cost = SLOW + 2 * FAST
    assert slow.fetch(after=cost * FULL_FETCH_AFTER - 1.0) == [PLAIN_IN_RANGES, MAY_QUEUES_BE_NEXT]
    assert slow.fetch(after=1.0) == [PLAIN, MAY_QUEUES_BE_NEXT]
    assert slow.fetch() == [PLAIN, MAY_QUEUES_BE_NEXT]  # it was fast, so there are no watermarks


def test_an_announced_job_that_is_not_found_makes_a_full_fetch_due_sooner(slow: Play) -> None:
    assert slow.plan.full_fetch_in(slow.now) is None
    assert slow.fetch(announced=True) == [PLAIN_IN_RANGES, MAY_QUEUES_BE_NEXT]
    wait = slow.plan.full_fetch_in(slow.now)
    assert wait is not None
    assert wait == pytest.approx((SLOW + 2 * FAST) * FULL_FETCH_AFTER_ANNOUNCED, abs=0.01)
    assert slow.fetch(after=wait) == [
        *(PLAIN_IN_RANGES, MAY_QUEUES_BE_NEXT),
        *(PLAIN, MAY_QUEUES_BE_NEXT),
    ]
    assert slow.plan.full_fetch_in(slow.now) is None


def test_if_a_job_was_found_another_one_may_still_be_below_the_watermark(slow: Play) -> None:
    slow.found[PLAIN] = [job(3)]
    assert slow.fetch(announced=True) == [PLAIN_IN_RANGES]
    wait = slow.plan.full_fetch_in(slow.now)
    assert wait is not None
    assert wait == pytest.approx((SLOW + 2 * FAST) * FULL_FETCH_AFTER, abs=0.01)
    assert slow.fetch(after=wait) == [PLAIN]


def test_above_watermarks_named_queues_are_found_too(slow: Play) -> None:
    slow.may_queues_be_next = True
    assert slow.fetch() == [PLAIN_IN_RANGES, MAY_QUEUES_BE_NEXT, WHOLE_IN_RANGES]
    assert slow.fetch() == [WHOLE_IN_RANGES]


def test_jobs_are_not_lost_if_their_priorities_cannot_be_listed(play: Play) -> None:
    play.seconds[PLAIN] = SLOW
    play.found[PLAIN] = [job()]
    play.fails = {LIST_PRIORITIES}
    assert play.fetch() == [PLAIN, LIST_PRIORITIES]
    assert play.jobs == play.found[PLAIN]
    assert play.fetch() == [PLAIN, LIST_PRIORITIES]


@pytest.mark.parametrize("forget", [FetchPlan.forget_watermarks, FetchPlan.forget])
def test_without_watermarks_the_next_fetch_is_a_full_one(slow: Play, forget: Any) -> None:
    forget(slow.plan)
    assert slow.fetch() == [PLAIN, MAY_QUEUES_BE_NEXT]


def test_while_flags_may_change_each_fetch_is_a_full_one(play: Play) -> None:
    play.seconds[PLAIN] = SLOW
    for _ in range(3):
        assert play.fetch(one_at_a_time=True) == [PLAIN, MAY_QUEUES_BE_NEXT, LIST_PRIORITIES]


# -- tasks -------------------------------------------------------------------------------------------------


def test_watermarks_are_forgotten_for_a_new_task(slow: Play) -> None:
    assert slow.fetch(tasks={1: "ours", 2: "new"}) == [PLAIN, MAY_QUEUES_BE_NEXT]


def test_watermarks_are_kept_for_fewer_tasks_and_forgotten_when_one_comes_back(play: Play) -> None:
    both = {1: "ours", 2: "other"}
    play.seconds[PLAIN] = SLOW
    play.fetch(tasks=both)
    play.seconds[PLAIN] = FAST
    for tasks in (both, dict(both), TASKS):
        assert play.fetch(tasks=tasks) == [PLAIN_IN_RANGES, MAY_QUEUES_BE_NEXT]
    assert play.fetch(tasks=both) == [PLAIN, MAY_QUEUES_BE_NEXT]


# -- very many priorities ----------------------------------------------------------------------------------


def test_too_many_priorities_are_read_as_one_range_until_there_are_fewer(play: Play) -> None:
    play.priorities = list(range(MANY_PRIORITIES))
    play.seconds[PLAIN] = SLOW
    assert play.fetch(one_at_a_time=True) == [PLAIN, MAY_QUEUES_BE_NEXT, LIST_PRIORITIES]
    play.seconds[PLAIN] = FAST
    assert play.fetch(one_at_a_time=True) == [PLAIN_IN_RANGES, MAY_QUEUES_BE_NEXT]
    assert play.ranges is not None
    low, high, since = play.ranges
    assert (low[-1], high[-1]) == (MANY_PRIORITIES, HIGHEST)
    assert set(since) == {FROM_START}
    play.priorities = [0]
    assert play.fetch(one_at_a_time=True, after=LIST_AGAIN_AFTER) == [
        *(LIST_PRIORITIES, PLAIN, MAY_QUEUES_BE_NEXT)
    ]
    assert play.fetch(one_at_a_time=True) == [PLAIN, MAY_QUEUES_BE_NEXT]
