"""Lanes: tasks with slots of their own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from graphile_worker import App, Lane, task
from graphile_worker.errors import ConfigError
from graphile_worker.hooks.events import WorkerCreated
from graphile_worker.tasks.registry import build_registry
from graphile_worker.testing.results import EventRecorder
from graphile_worker.worker.plan import plan_lanes
from support.working import MODES, Gate, Jobs, Workers, until


async def slow() -> None:
    """A task for plans."""


@task(lane="video")
async def transcode() -> None:
    """A task that names its lane."""


def plan(tasks: list[Any], *lanes: Lane, concurrency: int = 3) -> list[tuple[str, tuple[str, ...], int]]:
    plans = plan_lanes(build_registry(tasks), lanes, concurrency)
    return [(each.name, each.tasks, each.concurrency) for each in plans]


# -- which task is in which lane -----------------------------------------------------------------------------


def test_without_lanes_all_tasks_are_in_the_main_lane() -> None:
    assert plan([slow]) == [("main", ("slow",), 3)]


def test_a_lane_names_its_tasks_or_a_task_its_lane() -> None:
    expected = [("main", ("slow",), 3), ("video", ("transcode",), 2)]
    assert plan([slow, transcode], Lane("video", concurrency=2)) == expected
    for name in (transcode, transcode.function, "transcode"):
        assert plan([slow, transcode], Lane("video", tasks=[name], concurrency=2)) == expected


def test_the_main_lane_is_left_out_if_it_has_no_tasks() -> None:
    assert plan([transcode], Lane("video")) == [("video", ("transcode",), 1)]


def test_a_lane_without_tasks_is_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert plan([slow], Lane("video")) == [("main", ("slow",), 3)]
    assert "the lane 'video' has no tasks in this worker" in caplog.text


@pytest.mark.parametrize(
    ("tasks", "lanes", "message"),
    [
        ([transcode], [], "the task 'transcode' is in the lane 'video', which this worker does not have"),
        ([transcode], [Lane("video"), Lane("b", tasks=[transcode])], "in two lanes: 'video', by its @task"),
        ([slow], [Lane("a", tasks=[slow]), Lane("b", tasks=["slow"])], "in two lanes: 'a' and 'b'"),
        ([slow], [Lane("a", tasks=["quick"])], "lane 'a': the worker has no task 'quick'; its tasks: slow"),
        ([slow], [Lane("a", tasks=[transcode])], "lane 'a': the worker has no task 'transcode'"),
    ],
)
def test_mistakes_are_named(tasks: list[Any], lanes: list[Lane], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan(tasks, *lanes)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Lane("", concurrency=1), "expected a name"),
        (lambda: Lane("main"), "the option concurrency sets its slots"),
        (lambda: Lane("a", concurrency=0), "a: must be at least 1, got 0"),
        (lambda: Lane("a", concurrency=2**31), "a: must be at most 1000000, got"),
        (lambda: Lane("a\nb"), "expected a name of printable characters"),
        (lambda: Lane("a", tasks="slow"), "expected a list of tasks"),
        (lambda: App(lanes=[Lane("a"), Lane("a")]), "two lanes with the name 'a'"),
        (lambda: App(lanes=["a"]), "expected Lane objects, got 'a'"),  # type: ignore[list-item]
        (lambda: App(lanes={"a": 0}), "a: must be at least 1, got 0"),
        (lambda: task(lane="")(slow), "lane: expected the name of a lane"),
    ],
)
def test_wrong_lanes_are_refused(make: Any, message: str) -> None:
    with pytest.raises(Exception, match=message):
        make()


# -- running ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
async def test_a_slow_lane_and_the_main_lane_cannot_starve_each_other(
    mode: str, jobs: Jobs, workers: Workers
) -> None:
    """All slots of one lane are busy; jobs of the other run, in both directions."""
    slow, quick = Gate(), Gate()
    await jobs.add_many("slow", 6)
    lanes = [Lane("slow", tasks=["slow"], concurrency=2)]
    await workers.start({"slow": slow, "quick": quick}, lanes=lanes, concurrency=3, **MODES[mode])
    await slow.until_inside(2)
    await jobs.add_many("quick", 9)
    for _ in range(9):
        await quick.until_inside(1)
        quick.open()
    await until(lambda: len(quick.ended) == 9)
    assert (len(slow.started), slow.ended) == (2, [])
    await jobs.add_many("quick", 4)
    await quick.until_inside(3)
    for _ in range(6):
        await slow.until_inside(1)
        slow.open()
    await until(lambda: len(slow.ended) == 6)
    assert (len(quick.started), len(quick.ended)) == (12, 9)
    assert (slow.most_at_once, quick.most_at_once) == (2, 3)
    for _ in range(4):
        await quick.until_inside(1)
        quick.open()
    await jobs.until_gone()


async def test_slots_tell_the_tasks_of_their_lane(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    await workers.start([slow, transcode], lanes={"video": 2}, concurrency=1, events=recorder.events)
    created = [event.tasks for event in recorder.of(WorkerCreated)]
    assert created == [("slow",), ("transcode",), ("transcode",)]


@pytest.mark.parametrize("mode", MODES)
async def test_a_drain_empties_every_lane(mode: str, jobs: Jobs, workers: Workers) -> None:
    """Also a named queue whose jobs are of tasks in different lanes."""
    ran: list[str] = []

    async def first() -> None:
        ran.append("first")

    async def second() -> None:
        ran.append("second")

    for _ in range(5):
        await jobs.add("first", queue="mixed")
        await jobs.add("second", queue="mixed")
    await jobs.add_many("first", 50)
    await jobs.add_many("second", 50)
    lanes = [Lane("second", tasks=["second"])]
    await workers.once({"first": first, "second": second}, lanes=lanes, **MODES[mode])
    assert (ran.count("first"), ran.count("second")) == (55, 55)
    assert await jobs.count() == 0


@pytest.mark.parametrize("mode", MODES)
async def test_a_named_queue_goes_on_across_lanes_one_job_at_a_time(
    mode: str, jobs: Jobs, workers: Workers
) -> None:
    """No poll helps: a queue that one lane frees is continued by another at once."""
    active, most, done = 0, 0, 0

    async def work() -> None:
        nonlocal active, most, done
        active += 1
        most = max(most, active)
        await asyncio.sleep(0)
        active -= 1
        done += 1

    lanes = [Lane(name, tasks=[name], concurrency=2) for name in ("b", "c")]
    await workers.start(dict.fromkeys("abc", work), lanes=lanes, **MODES[mode])
    for number in range(30):
        await jobs.add("abc"[number % 3], queue="one")
    await until(lambda: done == 30)
    assert most == 1
    await jobs.until_gone()


async def test_a_busy_lane_does_not_hold_the_next_job_of_a_queue(jobs: Jobs, workers: Workers) -> None:
    """A queue is continued in a lane with a free slot only; the job of a busy lane stays in the queue."""
    gate = Gate()

    async def quick() -> None:
        """Ends at once."""

    lanes = [Lane("busy", tasks=["busy"])]
    blocker = await jobs.add("busy")
    await workers.start({"quick": quick, "busy": gate}, lanes=lanes)
    await gate.until_inside(1)
    await jobs.add("quick", queue="mixed")
    waiting = await jobs.add("busy", queue="mixed")

    async def is_left() -> bool:
        rows = await jobs.all()
        return [row["id"] for row in rows] == [blocker, waiting] and rows[1]["locked_at"] is None

    await until(is_left)
    assert (await jobs.queues())[0]["locked_at"] is None
    gate.open()
    await gate.until_inside(1)
    gate.open()
    await jobs.until_gone()


async def test_a_stopping_worker_returns_the_jobs_of_all_lanes(jobs: Jobs, workers: Workers) -> None:
    gate = Gate()
    await jobs.add_many("first", 3)
    await jobs.add_many("second", 3)
    runner = await workers.start(
        {"first": gate, "second": gate}, lanes=[Lane("b", tasks=["second"])], grace=0.1
    )
    await gate.until_inside(2)
    await runner.stop()
    assert await jobs.locked() == 0
    assert [row["attempts"] for row in await jobs.all()] == [0] * 6


async def test_a_failing_database_does_not_stop_a_lane(jobs: Jobs, workers: Workers) -> None:
    """The shared sessions are reopened, and each lane fetches again."""
    done: list[str] = []

    async def first() -> None:
        done.append("first")

    async def second() -> None:
        done.append("second")

    await workers.start({"first": first, "second": second}, lanes=[Lane("b", tasks=["second"])])
    await jobs.connection.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity "
        "where datname = current_database() and pid <> pg_backend_pid()"
    )
    await jobs.add("first")
    await jobs.add("second")
    await until(lambda: sorted(done) == ["first", "second"])
