"""Limits: how many jobs of some tasks run at once and start in a period, over all workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from graphile_worker import Lane, Limit, Runner, Task, WorkerUtils, task
from graphile_worker.database.statements.limits import LimitState
from graphile_worker.errors import ConfigError, GraphileWorkerError
from graphile_worker.tasks.registry import build_registry
from graphile_worker.worker.plan import check_limits, plan_lanes
from support.working import MODES, SCHEMA, Gate, Jobs, Workers, until, workers_of

ONE = Limit("one", concurrency=1)
THREE = Limit("three", concurrency=3)
HOURLY = timedelta(hours=1)


def limited(function: Any, *limits: Limit, name: str = "limited", **options: Any) -> Task[Any, Any]:
    """A task that calls the function, with these limits."""

    async def call(payload: Any) -> None:
        await function(payload)

    return task(name, limit=list(limits), **options)(call)


class Beside(Workers):
    """Workers that have another limited task: lanes with limits ask together before they fetch."""

    async def start(self, task_list: Any, **options: Any) -> Runner:
        return await super().start([*task_list, self._other()], **options)

    async def once(self, task_list: Any, **options: Any) -> None:
        await super().once([*task_list, self._other()], **options)

    def _other(self) -> Task[Any, Any]:
        return limited(Gate(), Limit("another", concurrency=1), name="another")


@pytest.fixture(params=[Workers, Beside], ids=["alone", "beside another"])
async def workers(request: pytest.FixtureRequest, database_url: str) -> AsyncIterator[Workers]:
    async for workers in workers_of(database_url, kind=request.param):
        yield workers


# -- which tasks share a lane --------------------------------------------------------------------------------


def plan(tasks: list[Any], *lanes: Lane) -> list[tuple[str, tuple[str, ...], int, list[str]]]:
    plans = plan_lanes(build_registry(tasks), lanes, 7)
    return [
        (each.name, each.tasks, each.concurrency, [limit.name for limit in each.limits]) for each in plans
    ]


def test_tasks_with_the_same_limits_share_a_lane() -> None:
    tasks = [
        limited(Gate(), ONE, name="a"),
        limited(Gate(), THREE, ONE, name="b"),
        limited(Gate(), ONE, THREE, name="c"),
        limited(Gate(), ONE, name="d", lane="own"),
        task("e")(Gate().__call__),
    ]
    assert plan(tasks, Lane("own", concurrency=2)) == [
        ("main", ("e",), 7, []),
        ("own", ("d",), 2, ["one"]),
        ("limit one", ("a",), 7, ["one"]),
        ("limits one + three", ("b", "c"), 7, ["one", "three"]),
    ]


def test_tasks_of_one_lane_must_have_the_same_limits() -> None:
    tasks = [limited(Gate(), ONE, name="a", lane="x"), limited(Gate(), THREE, name="b", lane="x")]
    with pytest.raises(ConfigError, match="'a' and 'b' are in the lane 'x' and have different limits"):
        plan(tasks, Lane("x"))


def test_a_limited_task_cannot_be_in_a_fair_lane() -> None:
    tasks = [task("free")(Gate().__call__), limited(Gate(), ONE, name="a")]
    with pytest.raises(ConfigError, match="'a' has a limit and cannot be in the fair lane 'x'; remove"):
        plan(tasks, Lane("x", tasks=["free", "a"], order="fair"))


def test_limits_of_one_name_must_be_the_same() -> None:
    tasks = [limited(Gate(), ONE, name="a"), limited(Gate(), Limit("one", concurrency=2), name="b")]
    with pytest.raises(ConfigError, match="two limits with the name 'one' and different bounds"):
        plan(tasks)


def test_a_period_may_be_written_in_two_ways() -> None:
    minute = [Limit("one", rate=(5, 60)), Limit("one", rate=(5, timedelta(minutes=1)))]
    tasks = [limited(Gate(), limit, name=name) for name, limit in zip("ab", minute, strict=True)]
    assert plan(tasks) == [("limit one", ("a", "b"), 7, ["one"])]


def test_two_limits_and_one_whose_name_looks_like_both_have_different_lanes() -> None:
    both, one = Limit("one + three", concurrency=1), limited(Gate(), ONE, THREE, name="a")
    assert [name for name, *_ in plan([one, limited(Gate(), both, name="b")])] == [
        "limits one + three", "limit one + three",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Limit("a"), "'a' has neither a concurrency nor a rate"),
        (lambda: Limit("", concurrency=1), "expected a name"),
        (lambda: Limit("a\nb", concurrency=1), "expected a name of at most 128 printable characters"),
        (lambda: Limit("\ud800", concurrency=1), "expected a name of at most 128 printable characters"),
        (lambda: Limit("a", concurrency=-1), "concurrency: expected a whole number from 0"),
        (lambda: Limit("a", concurrency=1, burst=2), "burst: the limit 'a' has no rate to exceed"),
        (lambda: Limit("a", rate=(0, 1)), "rate: expected a whole number from 1"),
        (lambda: Limit("a", rate=(1, 0)), "rate: its period must be from 0.001"),
        (lambda: Limit("a", rate=(1, 1e-9)), "rate: its period must be from 0.001"),
        (lambda: Limit("a", rate=(1_000_000_000, 0.1)), "rate: at most 1000000000 starts per second"),
        (lambda: Limit("a", rate=5), "rate: expected a number and a period"),  # type: ignore[arg-type]
        (lambda: Limit("a", rate=(5, 1), burst=0), "burst: expected a whole number from 1"),
        (lambda: limited(Gate(), "a"), "limit: expected a Limit or a list of them"),  # type: ignore[arg-type]
    ],
)
def test_wrong_limits_are_refused(make: Any, message: str) -> None:
    with pytest.raises(GraphileWorkerError, match=message):
        make()


# -- concurrency ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
async def test_no_more_jobs_run_at_once_than_the_limit_allows(
    mode: str, jobs: Jobs, workers: Workers
) -> None:
    """Two workers with ten slots each; every job that ends makes room for the next one, without a poll."""
    gate = Gate()
    await jobs.add_many("limited", 20)
    for _ in range(2):
        await workers.start([limited(gate, THREE)], concurrency=10, **MODES[mode])
    for done in range(20):
        await gate.until_inside(min(3, 20 - done))
        assert gate.inside <= 3
        gate.open()
    await jobs.until_gone()
    assert gate.most_at_once == 3


async def test_news_about_room_is_heard_while_a_fetch_is_under_way(jobs: Jobs, workers: Workers) -> None:
    """Its answer may come later, and say that there was none."""
    gate = Gate()
    runner: Any = await workers.start([limited(gate, THREE)], concurrency=10)
    await jobs.add("limited")
    await gate.until_inside(1)
    fetcher = next(lane.fetcher for lane in runner._running_pool._lanes if "limited" in lane.plan.tasks)
    assert fetcher._is_counted
    fetcher._learn(LimitState(is_busy=True))
    assert fetcher._is_counted  # that another pool is fetching tells nothing about it
    seen = []

    async def ended(*arguments: Any, **options: Any) -> Any:
        seen.append(fetcher.is_refused)
        return ()

    fetcher._fetch = ended
    await fetcher.fetch(1)
    assert (seen, fetcher.is_refused) == ([True], False)
    del fetcher._fetch
    gate.open()
    await jobs.until_gone()


async def test_all_limits_of_a_task_must_have_room(jobs: Jobs, workers: Workers) -> None:
    """`b` has both limits; `a` uses up the narrow one."""
    a, b = Gate(), Gate()
    await workers.start([limited(a, ONE, name="a"), limited(b, ONE, THREE, name="b")], concurrency=10)
    await jobs.add("a")
    await a.until_inside(1)
    await jobs.add("b")
    await jobs.add("a")
    await until_awaited(jobs, "one")
    assert (a.inside, b.inside) == (1, 0)
    for _ in range(2):
        (a if a.inside else b).open()
        await until(lambda: a.inside + b.inside == 1)
    (a if a.inside else b).open()
    await jobs.until_gone()
    assert (len(a.ended), len(b.ended)) == (2, 1)


async def test_a_refused_worker_is_told_when_another_one_leaves_room(jobs: Jobs, workers: Workers) -> None:
    """The workers have different tasks with one limit: the one that makes room cannot use it. None polls."""
    a, b = Gate(), Gate()
    await workers.start([limited(a, ONE, name="a")])
    await workers.start([limited(b, ONE, name="b")])
    await jobs.add("a")
    await a.until_inside(1)
    await jobs.add("b")
    await until_awaited(jobs, "one")
    a.open()
    await b.until_inside(1)
    b.open()
    await jobs.until_gone()


async def test_a_failed_job_makes_room(jobs: Jobs, workers: Workers) -> None:
    """Its row stays in the table, and no pool has it locked."""
    gate = Gate()
    await jobs.add_many("limited", 2, max_attempts=1)
    await workers.start([limited(gate, ONE)], concurrency=10)
    await gate.until_inside(1)
    gate.open(RuntimeError("no"))
    await gate.until_inside(1)
    gate.open()
    await until(lambda: len(gate.ended) == 1)


@pytest.mark.parametrize("mode", MODES)
async def test_named_queues_of_limited_tasks_stay_serial(mode: str, jobs: Jobs, workers: Workers) -> None:
    gate = Gate()
    for number in range(4):
        for queue in ("x", "y", "z"):
            await jobs.add("limited", [queue, number], queue=queue)
    await jobs.add("limited", ["none", 0])
    await workers.start([limited(gate, THREE)], concurrency=10, **MODES[mode])
    for _ in range(13):
        await gate.until_inside(1)
        inside = [payload[0] for payload, waiter in gate._waiting if not waiter.done()]
        assert len(set(inside)) == len(inside) <= 3
        gate.open()
    await jobs.until_gone()
    for queue in ("x", "y", "z"):
        assert [payload[1] for payload in gate.started if payload[0] == queue] == [0, 1, 2, 3]
    assert await jobs.locked() == 0


async def test_a_queue_is_never_continued_with_a_limited_job(jobs: Jobs, workers: Workers) -> None:
    """A write that frees a queue must not lock its next job past the limit."""
    a, b = Gate(), Gate()
    await workers.start([limited(a, ONE, name="a"), task("b")(b.__call__)], concurrency=10)
    await jobs.add("a")
    await a.until_inside(1)
    await jobs.add("b", queue="mixed")
    await jobs.add("a", queue="mixed")
    await b.until_inside(1)
    b.open()
    await until_awaited(jobs, "one")
    await until(lambda: len(b.ended) == 1)
    assert a.inside == 1
    a.open()
    await a.until_inside(1)
    a.open()
    await jobs.until_gone()
    assert a.most_at_once == 1


async def test_priorities_flags_and_run_at_hold_within_a_limit(jobs: Jobs, workers: Workers) -> None:
    ran: list[Any] = []

    async def record(payload: Any) -> None:
        ran.append(payload)

    await jobs.add("limited", "last", priority=5)
    await jobs.add("limited", "forbidden", flags=["no"])
    await jobs.add("limited", "first", priority=-5)
    await jobs.add("limited", "middle")
    later = await jobs.connection.fetchval("select now() + interval '1 day'")
    await jobs.add("limited", "later", run_at=later)
    await workers.once([limited(record, ONE)], forbidden_flags=["no"])
    assert ran == ["first", "middle", "last"]


# -- rate ----------------------------------------------------------------------------------------------------


async def test_a_drain_runs_as_many_as_may_start_now(jobs: Jobs, workers: Workers) -> None:
    await jobs.add_many("limited", 9)
    gate = Gate()
    limit = Limit("slowly", rate=(1, HOURLY), burst=4)

    async def count(payload: Any) -> None:
        gate.ended.append(payload)

    await workers.once([limited(count, limit)], concurrency=10)
    assert len(gate.ended) == 4
    await workers.once([limited(count, limit)], concurrency=10)
    assert len(gate.ended) == 4
    rows = await jobs.all()
    assert [row["attempts"] for row in rows] == [0] * 5
    assert await jobs.locked() == 0


async def test_a_worker_goes_on_when_the_next_job_may_start(jobs: Jobs, workers: Workers) -> None:
    """Without a poll or a notification."""
    await jobs.add_many("limited", 12)
    done: list[float] = []

    async def record(payload: Any) -> None:
        done.append(asyncio.get_running_loop().time())

    await workers.start([limited(record, Limit("paced", rate=(40, 1), burst=2))], concurrency=10)
    await until(lambda: len(done) == 12)
    assert done[-1] - done[0] > 0.1  # eight tokens at least, at forty per second


async def test_two_workers_share_a_rate(jobs: Jobs, workers: Workers) -> None:
    await jobs.add_many("limited", 30)
    done: list[Any] = []

    async def record(payload: Any) -> None:
        done.append(payload)

    for _ in range(2):
        await workers.start([limited(record, Limit("shared", rate=(5, HOURLY), burst=5))], concurrency=10)
    await until(lambda: len(done) == 5)
    await until_tokens_below_one(jobs)
    assert len(done) == 5


# -- changing limits -----------------------------------------------------------------------------------------


async def test_a_limit_changes_at_once(jobs: Jobs, workers: Workers, utils: WorkerUtils) -> None:
    gate = Gate()
    await jobs.add_many("limited", 8)
    await workers.start([limited(gate, ONE)], concurrency=10)
    await gate.until_inside(1)
    await utils.set_limit("one", concurrency=4)
    await gate.until_inside(4)
    await utils.set_limit("one", concurrency=2)
    for _ in range(3):
        gate.open()
    await until(lambda: gate.inside == 2)
    await utils.limits.reset("one")
    for _ in range(5):
        await gate.until_inside(1)
        gate.open()
    await jobs.until_gone()
    assert gate.most_at_once == 4


async def test_what_is_set_by_hand_survives_a_start_and_the_last_start_wins_over_the_code(
    workers: Workers, utils: WorkerUtils
) -> None:
    await workers.once([limited(Gate(), Limit("x", concurrency=5, rate=(10, 60)))], events=None)
    await start_and_stop(workers, Limit("x", concurrency=5, rate=(10, 60)))
    await utils.set_limit("x", concurrency=2)
    await start_and_stop(workers, Limit("x", concurrency=7, rate=(20, 60), burst=3))
    found = next(each for each in await utils.limits.list() if each.name == "x")
    assert (found.name, found.concurrency, found.rate, found.burst) == ("x", 2, (20, timedelta(minutes=1)), 3)
    assert (found.tasks, found.overridden, found.running) == (("limited",), ("concurrency",), 0)
    await utils.limits.reset("x")
    found = next(each for each in await utils.limits.list() if each.name == "x")
    assert (found.concurrency, found.overridden, found.set_at) == (7, (), None)


async def test_what_was_set_before_stays_when_another_bound_is_set(
    workers: Workers, utils: WorkerUtils
) -> None:
    await start_and_stop(workers, Limit("x", concurrency=5, rate=(10, 60)))
    await utils.set_limit("x", rate=(20, 60), burst=4)
    await utils.set_limit("x", concurrency=2)
    found = next(each for each in await utils.limits.list() if each.name == "x")
    assert (found.concurrency, found.rate, found.burst) == (2, (20, timedelta(minutes=1)), 4)


async def test_limits_that_do_not_exist_cannot_be_set(workers: Workers, utils: WorkerUtils) -> None:
    await start_and_stop(workers, Limit("openai", concurrency=5))
    with pytest.raises(GraphileWorkerError, match="there is no limit 'opnai'; did you mean 'openai'"):
        await utils.set_limit("opnai", concurrency=1)
    for name in ("", "a\0b", "\ud800"):
        with pytest.raises(GraphileWorkerError, match="expected a name"):
            await utils.set_limit(name, concurrency=1)
        with pytest.raises(GraphileWorkerError, match="expected a name"):
            await utils.limits.reset(name)
    with pytest.raises(GraphileWorkerError, match="burst: the limit 'openai' has no rate"):
        await utils.set_limit("openai", burst=1)
    with pytest.raises(GraphileWorkerError, match="nothing to set"):
        await utils.set_limit("openai")


async def test_a_worker_without_the_objects_refuses_limited_tasks() -> None:
    plans = plan_lanes(build_registry([limited(Gate(), ONE)]), (), 1)
    with pytest.raises(ConfigError, match="the limits of limited cannot be kept"):
        check_limits(plans, has_limits=False)


async def test_a_limit_whose_row_was_deleted_is_written_again(jobs: Jobs, workers: Workers) -> None:
    gate = Gate()
    await workers.start([limited(gate, ONE)], concurrency=10)
    await jobs.connection.execute(f"delete from {SCHEMA}._private_py_limits")
    await jobs.add_many("limited", 2)
    await gate.until_inside(1)
    await until_awaited(jobs, "one")
    assert gate.inside == 1
    gate.open()
    await gate.until_inside(1)
    gate.open()
    await jobs.until_gone()


# -- support -------------------------------------------------------------------------------------------------


async def start_and_stop(workers: Workers, limit: Limit) -> None:
    runner = await workers.start([limited(Gate(), limit)])
    await runner.stop()


async def until_awaited(jobs: Jobs, name: str) -> None:
    """Until a fetch was refused by this limit."""

    async def is_awaited() -> bool:
        return await jobs.connection.fetchval(
            f"select is_awaited from {SCHEMA}._private_py_limits where name = $1", name
        )

    await until(is_awaited)


async def until_tokens_below_one(jobs: Jobs) -> None:
    async def is_used_up() -> bool:
        return await jobs.connection.fetchval(
            f"select bool_and(tokens < 1) from {SCHEMA}._private_py_limits where rate is not null"
        )

    await until(is_used_up)
