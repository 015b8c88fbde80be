"""The fetch plan, played through without a server: which statements a fetch sends, and what it learns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from graphile_worker import Job
from graphile_worker.database.statements.fetch import (
    FROM_START,
    HIGHEST,
    LOWEST,
    MANY_PRIORITIES,
    PriorityListing,
    Ranges,
)
from graphile_worker.worker.fetch.plan import (
    ANNOUNCED,
    EXAMINE_AGAIN_AFTER,
    FEWEST_COSTS,
    FULL_FETCH_AFTER,
    FULL_FETCH_AFTER_AWAITED,
    FULL_FETCH_WITHIN,
    HELD,
    LIST_AGAIN_AFTER,
    MAY_QUEUES_BE_NEXT,
    MOST_TIMES_READ,
    PLAIN,
    POLL_INTERVAL,
    SERIES,
    SKIPPED,
    SLACK,
    URGENT,
    WHOLE,
    Demand,
    Fetch,
    FetchPlan,
    ListPriorities,
)

LIMIT = 5
FAST = 0.001
COST = 0.1  # seconds that the server needs to read past rows
SERVER_TIME = 1_000_000.0  # seconds since 1970, when the test's clock shows 0
TASKS = {1: "ours"}
PLAIN_IN_RANGES, WHOLE_IN_RANGES = "plain in ranges", "whole in ranges"
LIST, MEASURE = "list priorities", "measure"
ABOVE = [PLAIN_IN_RANGES, MAY_QUEUES_BE_NEXT]
FULL = [PLAIN, MAY_QUEUES_BE_NEXT]


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
        self.waits: dict[str, float] = {}
        """Seconds that a statement waits, for a lock or for the event loop, which are no cost."""
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
        if isinstance(step, ListPriorities):
            name = MEASURE if step.limit else LIST
            assert step.limit in (0, LIMIT)
            self.sent.append(name)
            self.now += self.seconds.get(PLAIN, 0.0) if step.limit else 0.0
        else:
            name = step.kind if isinstance(step, Fetch) else step
            is_in_ranges = isinstance(step, Fetch) and step.ranges is not None
            self.sent.append(f"{name} in ranges" if is_in_ranges else name)
            # Above watermarks nothing is read past.
            self.now += FAST if is_in_ranges else self.seconds.get(name, FAST)
        self.now += self.waits.get(name, 0.0)
        return name

    def _answer(self, step: Any) -> Any:
        if step == MAY_QUEUES_BE_NEXT:
            return self.may_queues_be_next
        if isinstance(step, ListPriorities):
            seconds = self.seconds.get(PLAIN, FAST) if step.limit else FAST
            return PriorityListing(self.priorities, SERVER_TIME + self.now, seconds, is_cut=False)
        assert step.limit == LIMIT
        self.ranges = step.ranges
        return self.found.get(step.kind, ())


@pytest.fixture
def play() -> Play:
    return Play()


@pytest.fixture
def slow(play: Play) -> Play:
    """A plan whose last full fetch found nothing and was slow, at priorities 0 and 3."""
    play.priorities = [0, 3]
    play.seconds[PLAIN] = COST
    assert play.fetch() == [*FULL, MEASURE]
    assert play.fetch() == ABOVE
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


def test_what_no_batch_has_found_may_have_a_key(play: Play) -> None:
    play.found[PLAIN] = [job()]
    assert play.fetch(may_hold=True) == [HELD, PLAIN]
    assert play.jobs == play.found[PLAIN]


def test_jobs_without_a_queue_are_not_held_for_a_while_after_named_queues_were_next(play: Play) -> None:
    play.may_queues_be_next = True
    play.found[WHOLE] = [job(queue=1)]
    assert play.fetch(may_hold=True) == [HELD, PLAIN, MAY_QUEUES_BE_NEXT, SERIES, WHOLE]
    for _ in range(SKIPPED - 1):
        assert play.fetch(may_hold=True) == [SERIES, WHOLE]
    assert play.fetch(may_hold=True)[0] == HELD


def test_jobs_without_a_queue_are_held_again_when_no_queue_is_next(play: Play) -> None:
    play.may_queues_be_next = True
    play.found[WHOLE] = [job(queue=1), job()]
    play.fetch(may_hold=True)
    play.found[WHOLE] = [job()]
    assert play.fetch(may_hold=True) == [SERIES, WHOLE]
    assert play.fetch(may_hold=True)[0] == HELD


def test_jobs_of_named_queues_are_held_before_any_are_locked(play: Play) -> None:
    play.may_queues_be_next = True
    play.found[SERIES] = [job(queue=1)]
    assert play.fetch(may_hold=True) == [HELD, PLAIN, MAY_QUEUES_BE_NEXT, SERIES]
    assert play.fetch(may_hold=True) == [SERIES]
    assert play.jobs == play.found[SERIES]
    assert play.fetch() == [WHOLE]


def test_jobs_above_watermarks_are_held_too(slow: Play) -> None:
    slow.found[HELD] = [job()]
    assert slow.fetch(may_hold=True) == ["held in ranges"]
    slow.found = {}
    assert slow.fetch(may_hold=True) == ["held in ranges", PLAIN_IN_RANGES, MAY_QUEUES_BE_NEXT]


def test_nothing_is_held_while_there_are_wide_queues(slow: Play) -> None:
    slow.plan.forget_watermarks()
    slow.plan.is_wide = True
    assert slow.fetch(may_hold=True) == ["wide"]


def test_a_slow_fetch_of_held_jobs_sets_watermarks(play: Play) -> None:
    play.seconds[HELD] = play.seconds[PLAIN] = COST
    play.found[HELD] = [job()]
    assert play.fetch(may_hold=True) == [HELD, MEASURE]
    assert play.fetch(may_hold=True) == ["held in ranges"]


# -- watermarks --------------------------------------------------------------------------------------------


def test_after_a_slow_fetch_the_next_ones_start_at_watermarks(play: Play) -> None:
    play.priorities = [0, 3]
    play.seconds[PLAIN] = COST
    began = play.now
    assert play.fetch() == [*FULL, MEASURE]
    assert play.fetch() == ABOVE
    seen = pytest.approx(SERVER_TIME + began - SLACK)
    assert play.ranges == (
        [LOWEST, 0, 1, 3, 4],
        [-1, 0, 2, 3, HIGHEST],
        [FROM_START, seen, FROM_START, seen, FROM_START],
    )


def test_watermarks_go_by_the_time_of_the_worker_if_that_is_used(play: Play) -> None:
    now = datetime.fromtimestamp(SERVER_TIME - 7200, UTC)
    play.seconds[PLAIN] = COST
    play.fetch(now=now)
    play.fetch(now=now)
    assert play.ranges is not None
    assert play.ranges[2][1] == now.timestamp() - SLACK


def test_a_worker_whose_clock_is_ahead_does_not_read_past_jobs_that_are_added_later(play: Play) -> None:
    """They get a run_at by the server's clock."""
    ahead = datetime.fromtimestamp(SERVER_TIME + play.now + 7200, UTC)
    play.seconds[PLAIN] = COST
    play.fetch(now=ahead)
    for _ in range(3):
        play.fetch(now=ahead)
        assert play.ranges is not None
        assert play.ranges[2][1] < SERVER_TIME + play.now


def test_a_full_batch_says_nothing_about_later_jobs(play: Play) -> None:
    play.priorities = [0, 3]
    play.seconds[PLAIN] = COST
    play.found[PLAIN] = [job(0, run_at=7.0)] * LIMIT
    assert play.fetch() == [PLAIN, MEASURE]
    play.fetch()
    assert play.ranges is not None
    assert play.ranges[2] == [FROM_START, 7.0, FROM_START, FROM_START, FROM_START]


def test_a_batch_that_may_have_left_some_says_nothing_about_later_jobs(slow: Play) -> None:
    """As a fetch by id does, which reads a limited number of ids."""
    slow.fetch()
    assert slow.ranges is not None
    seen = slow.ranges[2][1]
    slow.found[HELD] = [job(0, run_at=seen + 0.4)]
    slow.plan.has_left_some = True
    slow.fetch(may_hold=True, after=1.0)
    slow.fetch(may_hold=True)
    assert slow.ranges[2][1] == seen + 0.4
    slow.plan.has_left_some = False
    slow.fetch(may_hold=True)
    slow.fetch(may_hold=True)
    assert slow.ranges[2][1] > seen + 0.5


def test_a_fetch_that_was_slow_because_of_its_jobs_sets_no_watermarks(play: Play) -> None:
    play.found[PLAIN] = [job()] * 1000
    play.seconds[PLAIN] = 0.02
    assert play.fetch() == [PLAIN]
    assert play.fetch() == [PLAIN]


def test_a_fetch_of_many_jobs_past_a_million_dead_rows_sets_watermarks(play: Play) -> None:
    """They take 30 ms, as long as a busy queue waits for autovacuum."""
    play.found[PLAIN] = [job()] * 600
    play.seconds[PLAIN] = 0.03
    assert play.fetch() == [PLAIN, MEASURE]
    assert play.fetch() == [PLAIN_IN_RANGES]


def test_above_watermarks_named_queues_are_found_too(slow: Play) -> None:
    slow.may_queues_be_next = True
    assert slow.fetch() == [PLAIN_IN_RANGES, MAY_QUEUES_BE_NEXT, WHOLE_IN_RANGES]
    assert slow.fetch() == [WHOLE_IN_RANGES]


def test_jobs_are_not_lost_if_their_priorities_cannot_be_listed(play: Play) -> None:
    play.seconds[PLAIN] = COST
    play.found[PLAIN] = [job()]
    play.fails = {MEASURE}
    assert play.fetch() == [PLAIN, MEASURE]
    assert play.jobs == play.found[PLAIN]
    assert play.fetch() == [PLAIN, MEASURE]


@pytest.mark.parametrize("forget", [FetchPlan.forget_watermarks, FetchPlan.forget])
def test_without_watermarks_the_next_fetch_is_a_full_one(slow: Play, forget: Any) -> None:
    forget(slow.plan)
    assert slow.fetch() == [*FULL, MEASURE]


def test_what_is_forgotten_while_a_fetch_is_in_flight_stays_forgotten(play: Play) -> None:
    play.seconds[PLAIN] = COST
    steps = play.plan.fetch(Demand(LIMIT, TASKS), play.now)
    next(steps)
    play.plan.forget_watermarks()
    steps.send(((), play.now + COST))
    steps.send((False, play.now + COST))
    play.plan.forget_watermarks()
    with pytest.raises(StopIteration):
        steps.send((PriorityListing([0], SERVER_TIME + play.now, COST, is_cut=False), play.now + 2 * COST))
    assert play.fetch() == [*FULL, MEASURE]


def test_while_flags_may_change_each_fetch_is_a_full_one(play: Play) -> None:
    play.seconds[PLAIN] = COST
    for _ in range(3):
        assert play.fetch(one_at_a_time=True) == [*FULL, LIST]


# -- waiting is not cost -----------------------------------------------------------------------------------


def test_a_fetch_that_waited_is_not_taken_for_a_slow_one(play: Play) -> None:
    """For a lock on the table, or for a task that blocked the event loop."""
    play.waits[PLAIN] = 12.0
    assert play.fetch() == [*FULL, MEASURE]
    assert play.fetch(after=EXAMINE_AGAIN_AFTER) == [*FULL, MEASURE]


def test_nor_if_its_examination_waits_as_well(play: Play) -> None:
    play.waits[PLAIN] = play.waits[MEASURE] = 12.0
    assert play.fetch() == [*FULL, MEASURE]
    assert play.fetch() == [*FULL, MEASURE]


def test_while_every_fetch_waits_they_are_examined_now_and_then(play: Play) -> None:
    play.waits[PLAIN] = 0.1
    assert play.fetch() == [*FULL, MEASURE]
    for _ in range(7):
        assert play.fetch() == FULL
    play.seconds[PLAIN] = COST  # what is slow by itself is noticed soon
    for _ in range(10):
        play.fetch()
    assert play.fetch() == ABOVE


def test_a_wait_between_slow_fetches_does_not_count(slow: Play) -> None:
    """The cost is the one that was measured, so that the next full fetch is not put off."""
    slow.waits[PLAIN] = 12.0
    assert slow.fetch(after=POLL_INTERVAL) == [*FULL, MEASURE]
    assert slow.fetch() == ABOVE
    assert slow.fetch(after=2 * POLL_INTERVAL)[:2] == FULL


def test_beside_very_many_rows_the_measurement_stops_early(play: Play) -> None:
    """So its time is only a part of the cost; a wait that is much longer does not count either."""
    for wait, cost in ((0.0, COST), (12.0, MOST_TIMES_READ * 0.01)):
        play.plan.forget()
        began = play.now
        steps = play.plan.fetch(Demand(LIMIT, TASKS), began)
        next(steps)
        ended = began + COST + wait
        steps.send(((), ended))
        steps.send((False, ended))
        with pytest.raises(StopIteration):
            steps.send((PriorityListing([0], SERVER_TIME + ended, 0.01, is_cut=True), ended))
        assert play.plan._watermarks.cost == pytest.approx(cost)
        play.now = ended


# -- when full fetches come --------------------------------------------------------------------------------


def test_a_cost_that_was_measured_wrongly_hides_nothing_for_longer_than_a_poll_interval(play: Play) -> None:
    """The whole machine may have stood still."""
    play.seconds[PLAIN] = 1.0
    assert play.fetch() == [*FULL, MEASURE]
    assert play.fetch() == ABOVE
    play.seconds[PLAIN] = FAST
    assert play.fetch(after=POLL_INTERVAL) == FULL
    assert play.fetch() == FULL


def test_the_time_between_full_fetches_doubles_up_to_a_multiple_of_their_cost(slow: Play) -> None:
    waits = []
    for _ in range(6):
        last = slow.now
        while slow.fetch(after=0.05) != [*FULL, LIST]:
            assert slow.sent == ABOVE
        waits.append(slow.now - last)
    most = COST * FULL_FETCH_AFTER
    expected = [POLL_INTERVAL, 2 * POLL_INTERVAL, *[most] * 4]
    assert waits == [pytest.approx(wait, abs=0.6) for wait in expected]
    slow.seconds[PLAIN] = FAST
    assert slow.fetch(after=1.1 * most) == FULL
    assert slow.fetch() == FULL  # it was fast, so there are no watermarks


def test_however_much_a_full_fetch_costs_the_next_comes_within_half_a_minute(play: Play) -> None:
    play.seconds[PLAIN] = 3.0
    for _ in range(10):
        play.fetch()
        play.fetch(after=FULL_FETCH_WITHIN / 3)
    last = play.now
    while play.fetch(after=0.5)[:2] != FULL:
        assert play.now - last < FULL_FETCH_WITHIN


def test_an_announced_job_that_is_not_found_makes_a_full_fetch_due_sooner(slow: Play) -> None:
    assert slow.plan.full_fetch_in(slow.now) is None
    assert slow.fetch(announced=True) == ABOVE
    wait = slow.plan.full_fetch_in(slow.now)
    assert wait is not None
    assert wait <= COST * FULL_FETCH_AFTER_AWAITED
    assert slow.fetch(after=wait) == [*ABOVE, *FULL, LIST]
    assert slow.plan.full_fetch_in(slow.now) is None


def test_if_the_last_full_fetch_is_a_while_ago_an_announced_job_is_found_at_once(slow: Play) -> None:
    assert slow.fetch(after=COST * FULL_FETCH_AFTER_AWAITED, announced=True) == [*ABOVE, *FULL, LIST]


def test_if_a_job_was_found_another_one_may_still_be_below_the_watermark(slow: Play) -> None:
    slow.found[PLAIN] = [job(3)]
    assert slow.fetch(announced=True) == [PLAIN_IN_RANGES]
    wait = slow.plan.full_fetch_in(slow.now)
    assert wait is not None
    assert COST * FULL_FETCH_AFTER_AWAITED < wait <= POLL_INTERVAL
    assert slow.fetch(after=wait) == [PLAIN, LIST]


def test_freed_jobs_make_a_full_fetch_due_sooner_whatever_is_found(slow: Play) -> None:
    """They were returned, unlocked or rescheduled, so their run_at may be long ago."""
    slow.found[PLAIN] = [job(3)]
    slow.plan.jobs_freed()
    assert slow.fetch() == [PLAIN_IN_RANGES]
    wait = slow.plan.full_fetch_in(slow.now)
    assert wait is not None
    assert wait <= COST * FULL_FETCH_AFTER_AWAITED
    assert slow.fetch(after=wait) == [PLAIN, LIST]
    assert slow.plan.full_fetch_in(slow.now) is None


def test_jobs_that_are_freed_during_a_full_fetch_are_found_by_the_next(slow: Play) -> None:
    slow.now += POLL_INTERVAL
    steps = slow.plan.fetch(Demand(LIMIT, TASKS), slow.now)
    next(steps)
    slow.plan.jobs_freed()
    steps.send(((), slow.now + COST))
    steps.send((False, slow.now + COST))
    with pytest.raises(StopIteration):
        steps.send((PriorityListing([0], SERVER_TIME + slow.now, FAST, is_cut=False), slow.now + COST))
    assert slow.fetch(after=COST) == ABOVE
    assert slow.fetch(after=COST * FULL_FETCH_AFTER_AWAITED)[:2] == FULL


def test_jobs_that_a_failed_full_fetch_was_to_find_are_found_by_the_next(slow: Play) -> None:
    slow.fails = {PLAIN}
    slow.plan.jobs_freed()
    with pytest.raises(ConnectionError):
        slow.fetch(after=FULL_FETCH_AFTER_AWAITED * COST)
    slow.fails.clear()
    assert slow.plan.full_fetch_in(slow.now) is not None
    assert slow.fetch()[0] == PLAIN
    assert slow.plan.full_fetch_in(slow.now) is None


def test_an_awaited_job_waits_for_a_poll_interval_at_most_unless_full_fetches_take_long(play: Play) -> None:
    for cost, longest in ((0.3, POLL_INTERVAL), (3.0, FEWEST_COSTS * 3.0)):
        play.plan.forget()
        play.seconds[PLAIN] = cost
        for _ in range(10):
            play.fetch()
            play.fetch(after=FULL_FETCH_WITHIN / 3)
        play.plan.jobs_freed()
        wait = play.plan.full_fetch_in(play.now)
        assert wait is not None
        assert wait <= longest
        assert play.fetch(after=wait)[:2] == FULL


# -- tasks -------------------------------------------------------------------------------------------------


def test_watermarks_are_forgotten_for_a_new_task(slow: Play) -> None:
    assert slow.fetch(tasks={1: "ours", 2: "new"})[:2] == FULL


def test_watermarks_are_kept_for_fewer_tasks_and_forgotten_when_one_comes_back(play: Play) -> None:
    both = {1: "ours", 2: "other"}
    play.seconds[PLAIN] = COST
    play.fetch(tasks=both)
    for tasks in (both, dict(both), TASKS):
        assert play.fetch(tasks=tasks) == ABOVE
    assert play.fetch(tasks=both)[:2] == FULL


# -- very many priorities ----------------------------------------------------------------------------------


def test_too_many_priorities_are_read_as_one_range_until_there_are_fewer(play: Play) -> None:
    play.priorities = list(range(MANY_PRIORITIES))
    play.seconds[PLAIN] = COST
    assert play.fetch(one_at_a_time=True) == [*FULL, LIST]
    assert play.fetch(one_at_a_time=True) == ABOVE
    assert play.ranges is not None
    low, high, since = play.ranges
    assert (low[-1], high[-1]) == (MANY_PRIORITIES, HIGHEST)
    assert set(since) == {FROM_START}
    play.priorities = [0]
    play.seconds[PLAIN] = FAST
    assert play.fetch(one_at_a_time=True, after=LIST_AGAIN_AFTER) == [LIST, *FULL]
    assert play.fetch(one_at_a_time=True) == FULL


# -- jobs that come before prefetched ones -----------------------------------------------------------------


@pytest.mark.parametrize("found", [True, False])
def test_jobs_of_better_priorities_are_fetched_alone(play: Play, found: bool) -> None:
    play.found[PLAIN] = [job(-3)] if found else []
    assert play.fetch(up_to=-1) == ([PLAIN_IN_RANGES] if found else ABOVE)
    assert play.ranges is not None
    assert (min(play.ranges[0]), max(play.ranges[1])) == (LOWEST, -1)


def test_the_next_job_of_a_queue_is_among_them(play: Play) -> None:
    play.may_queues_be_next = True
    play.found[URGENT] = [job(-3, queue=1)]
    assert play.fetch(up_to=-1) == [*ABOVE, "urgent in ranges"]
    assert play.jobs == play.found[URGENT]


def test_they_are_not_looked_for_below_a_watermark(slow: Play) -> None:
    slow.fetch(up_to=1)
    assert slow.ranges is not None
    low, high, since = slow.ranges
    assert max(high) == 1
    assert since[low.index(0)] > FROM_START


def test_such_a_fetch_does_not_stand_for_a_full_one(play: Play) -> None:
    play.seconds[PLAIN] = COST
    play.fetch(up_to=-1)
    assert play.fetch() == [*FULL, MEASURE]


def test_a_fetch_from_far_away_is_not_taken_for_a_slow_one(play: Play) -> None:
    """Three round trips are all that a full fetch needs."""
    play.waits = dict.fromkeys((PLAIN, MAY_QUEUES_BE_NEXT), COST)
    play.plan.round_trip = COST
    assert play.fetch() == FULL
    play.plan.round_trip = 0.0
    assert play.fetch() == [*FULL, MEASURE]
