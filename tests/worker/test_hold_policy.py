"""When jobs are held, how many, and what a batch of little use costs; without worker, database and clock."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from graphile_worker import Lane, Limit, task
from graphile_worker.tasks.registry import build_registry
from graphile_worker.values.flags import FlagSources
from graphile_worker.values.option_groups import LocalQueueOptions
from graphile_worker.values.options import WorkerOptions
from graphile_worker.worker.fetch.adaptive import MAX_PREFETCH, PACE_SAMPLE, Pace
from graphile_worker.worker.held.policy import (
    FEWEST,
    FEWEST_SKIPPED,
    FIRST,
    MOST_SKIPPED,
    WARMING,
    HoldPolicy,
    Workload,
)
from graphile_worker.worker.plan import LanePlan, PoolPlan, plan_lanes

HOLD = 0.05


@pytest.fixture
def policy() -> HoldPolicy:
    policy = HoldPolicy(HOLD)
    policy.allow_from(0.0)
    return policy


def until_due(policy: HoldPolicy) -> int:
    """How many fetches hold nothing."""
    return next(skipped for skipped in range(1000) if policy.is_due(1.0, 0, 0))


# -- options and lanes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "flags", "expected"),
    [
        ({}, None, True),
        ({}, ["no"], True),
        ({}, lambda: [], False),
        ({"hold": 0}, None, False),
        ({"prefetch": 0}, None, False),
        ({"local_queue": LocalQueueOptions(size=10)}, None, False),
        ({"prepared_statements": False}, None, False),
    ],
    ids=["default", "flags", "flags of a function", "hold", "prefetch", "local queue", "pooler"],
)
def test_which_options_rule_it_out(options: dict[str, Any], flags: Any, expected: bool) -> None:
    plan = PoolPlan(
        options=WorkerOptions(**options), tasks={}, lanes=plan_lanes({}, [], 10), flags=FlagSources(flags)
    )
    assert plan.may_hold is expected


def test_which_lanes_hold_jobs() -> None:
    @task(lane="fair")
    async def turn() -> None: ...

    @task(limit=Limit("api", concurrency=5))
    async def call() -> None: ...

    @task
    async def plain() -> None: ...

    tasks = build_registry({"turn": turn, "call": call, "plain": plain})
    lanes = plan_lanes(tasks, [Lane("fair", order="fair", concurrency=10)], 10)

    def plan(lanes: list[LanePlan], **changes: Any) -> PoolPlan:
        return PoolPlan(options=WorkerOptions(), tasks=tasks, lanes=lanes, **changes)

    def held(**changes: Any) -> list[tuple[str, ...]]:
        return [lane.tasks for lane in lanes if plan(lanes, **changes).may_hold_in(lane)]

    assert sorted(held()) == [("call",), ("plain",)]
    assert held(has_held_limits=False) == [("plain",)]
    assert plan(lanes).may_hold
    assert not plan([lane for lane in lanes if lane.tasks == ("turn",)]).may_hold


def test_only_a_single_lane_without_limits_has_series() -> None:
    @task(limit=Limit("api", concurrency=5))
    async def call() -> None: ...

    @task
    async def plain() -> None: ...

    def may_hold_series(*functions: Any) -> bool:
        tasks = build_registry({each.identifier: each for each in functions})
        lanes = plan_lanes(tasks, [], 10)
        return PoolPlan(options=WorkerOptions(), tasks=tasks, lanes=lanes).may_hold_series

    assert may_hold_series(plain)
    assert not may_hold_series(call)
    assert not may_hold_series(plain, call)


# -- short and many ----------------------------------------------------------------------------------------


def workload(**changes: Any) -> Workload:
    terms: dict[str, Any] = {"run_time": 0.001, "wanted": 5000, "asked": 100, "found": 100}
    return Workload(**{**terms, "jobs_in": lambda seconds: 5000, **changes})


def is_worth(hold: float = HOLD, fitting: int = 100, **changes: Any) -> bool:
    given = workload(jobs_in=lambda seconds: fitting, **changes)
    return HoldPolicy(hold).is_worth_it(given, is_warming=False)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"hold": 0.0}, False),
        ({"run_time": 0.0}, False),  # not known yet
        ({"run_time": 0.0049}, True),
        ({"run_time": 0.0051}, False),
        ({"hold": 0.06, "run_time": 0.0051}, True),
        ({"wanted": FEWEST}, True),
        ({"wanted": FEWEST - 1}, False),
        ({"found": FEWEST}, True),
        ({"found": FEWEST - 1}, False),
        ({"asked": 10, "found": 10}, True),  # all that it asked for
        ({"asked": 10, "found": 9}, False),
        ({"fitting": FEWEST}, True),
        ({"fitting": FEWEST - 1}, False),
    ],
    ids=str,
)
def test_only_short_jobs_and_many_are_held(changes: dict[str, Any], expected: bool) -> None:
    assert is_worth(**changes) is expected


def test_the_pace_is_asked_last() -> None:
    """Most fetches are those of a worker that has little to do."""

    def fail(seconds: float) -> int:
        raise AssertionError

    assert not HoldPolicy(HOLD).is_worth_it(workload(wanted=1, jobs_in=fail), is_warming=False)


def test_as_many_jobs_fit_as_the_worker_starts_in_that_time() -> None:
    pace = Pace()
    assert pace.jobs_in(0.001) == MAX_PREFETCH  # unknown
    pace.received = 1000
    pace.measure(1.0, 0)  # slots have waited until now
    assert pace.jobs_in(0.001) == MAX_PREFETCH
    pace.received = 1000 + PACE_SAMPLE - 1
    pace.measure(2.0, 0)  # too few
    assert pace.jobs_in(0.001) == MAX_PREFETCH
    pace.received = 2500
    pace.measure(2.0, 500)  # a thousand in a second
    assert pace.jobs_in(0.1) == 100
    pace.starved = True
    pace.measure(3.0, 500)  # it may be faster
    assert pace.jobs_in(0.1) == 200
    assert not pace.starved


# -- when --------------------------------------------------------------------------------------------------


def test_nothing_is_held_before_it_is_allowed() -> None:
    policy = HoldPolicy(HOLD)
    assert not policy.is_allowed(1e9)
    assert not policy.is_due(1e9, 0, 0)
    policy.allow_from(5.0)
    assert not policy.is_allowed(4.9)
    assert not policy.is_due(4.9, 0, 0)
    assert policy.is_allowed(5.0)
    assert policy.is_due(5.0, 0, 0)
    policy.allow_from(math.inf)  # a worker has died
    assert not policy.is_due(6.0, 0, 0)


def test_nothing_is_held_if_that_is_off() -> None:
    policy = HoldPolicy(0.0)
    policy.allow_from(0.0)
    assert not policy.is_allowed(1.0)
    assert not policy.is_due(1.0, 0, 0)


def test_nothing_is_held_after_a_refusal(policy: HoldPolicy) -> None:
    policy.is_on = False
    policy.ended(1000, 0)
    assert not policy.is_due(1.0, 0, 0)
    assert not policy.is_allowed(1.0)


@pytest.mark.parametrize(("not_deleted", "expected"), [(0, True), (10, True), (11, False), (100, False)])
def test_nothing_is_held_while_many_of_the_latest_jobs_have_to_be_locked(
    policy: HoldPolicy, not_deleted: int, expected: bool
) -> None:
    """Those that failed or are kept."""
    assert policy.is_due(1.0, 1000, 0)
    assert policy.is_due(1.0, 1100, not_deleted) is expected
    assert policy.is_due(1.0, 1200, not_deleted)  # none of the latest


def test_jobs_that_ended_while_nothing_was_held_count_too(policy: HoldPolicy) -> None:
    policy.hold_less()
    for ended in range(100, 100 * FEWEST_SKIPPED + 1, 100):
        assert not policy.is_due(1.0, ended, ended)
    assert not policy.is_due(1.0, 400, 300)
    policy.allow_from(2.0)
    assert not policy.is_due(1.0, 500, 400)
    assert not policy.is_due(2.0, 500, 400)
    assert policy.is_due(2.0, 500, 400)


# -- batches of little use ---------------------------------------------------------------------------------


def test_each_further_batch_of_little_use_costs_more_fetches(policy: HoldPolicy) -> None:
    assert until_due(policy) == 0
    skipped = []
    for _ in range(7):
        policy.hold_less()
        policy.hold_less()  # while fetches are skipped, it costs no more
        skipped.append(until_due(policy))
    assert skipped == [3, 6, 12, 24, 48, 50, 50]
    assert skipped[-1] == MOST_SKIPPED


@pytest.mark.parametrize(("outlasting", "expected"), [(0, FEWEST_SKIPPED), (1, 2 * FEWEST_SKIPPED)])
def test_only_a_batch_that_ended_well_makes_up_for_those(
    policy: HoldPolicy, outlasting: int, expected: int
) -> None:
    policy.hold_less()
    until_due(policy)
    policy.ending(100, outlasting)
    policy.ended(100, outlasting)
    assert until_due(policy) == 0
    policy.hold_less()
    assert until_due(policy) == expected


@pytest.mark.parametrize(("outlasting", "expected"), [(0, 0), (10, 0), (11, FEWEST_SKIPPED)])
def test_a_batch_that_had_to_lock_many_jobs_is_of_little_use(
    policy: HoldPolicy, outlasting: int, expected: int
) -> None:
    policy.ending(100, outlasting)
    assert until_due(policy) == expected


@pytest.mark.parametrize(("started", "expected"), [(FEWEST, 0), (FEWEST - 1, FEWEST_SKIPPED)])
def test_a_batch_of_which_few_jobs_could_start_is_of_little_use(
    policy: HoldPolicy, started: int, expected: int
) -> None:
    policy.overrun(started)
    assert until_due(policy) == expected


# -- sizes -------------------------------------------------------------------------------------------------

End = Callable[[HoldPolicy], None]


def test_fetches_are_short_until_the_first_batch_can_begin(policy: HoldPolicy) -> None:
    assert policy.most_of_next(workload(), is_warming=True) == WARMING < FIRST
    assert policy.most_of_next(workload(), is_warming=False) == policy.most == FIRST


def test_a_batch_has_no_more_jobs_than_are_wanted_or_fit_into_half_of_its_time(policy: HoldPolicy) -> None:
    assert policy.most_of_next(workload(wanted=120), is_warming=False) == 120
    fitting = workload(jobs_in=lambda seconds: int(seconds * 4000))
    assert policy.most_of_next(fitting, is_warming=False) == HOLD / 2 * 4000


def test_batches_grow_by_a_quarter(policy: HoldPolicy) -> None:
    sizes = []
    for _ in range(4):
        sizes.append(policy.most)
        policy.ended(policy.most, 0)
    assert sizes == [FIRST, 1250, 1562, 1952]


def test_batches_that_were_made_smaller_double_until_they_are_as_large_as_the_first(
    policy: HoldPolicy,
) -> None:
    policy.overrun(400)
    sizes = []
    for _ in range(5):
        sizes.append(policy.most)
        policy.ended(policy.most, 0)
    assert sizes == [200, 400, 800, 1600, 2000]


def test_a_batch_is_never_made_smaller_than_is_of_use(policy: HoldPolicy) -> None:
    policy.overrun(0)
    assert policy.most == FEWEST


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (lambda policy: policy.ended(100, 0), FIRST),  # there were no more
        (lambda policy: policy.ended(FIRST, FIRST // 10), 1250),
        (lambda policy: policy.ended(FIRST, FIRST // 10 + 1), FIRST),
        (lambda policy: policy.hold_less(), FIRST),
        (lambda policy: policy.overrun(FIRST - 1), 499),
    ],
    ids=["small", "few outlast it", "many outlast it", "of little use", "one has not started"],
)
def test_how_large_the_next_batch_is(policy: HoldPolicy, end: End, expected: int) -> None:
    end(policy)
    assert policy.most == expected
