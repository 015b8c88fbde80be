"""The event for added jobs, and adding a whole JobSpec."""

from __future__ import annotations

from typing import Any

import pytest

from graphile_worker import JobSpec, make_worker_utils, run, task
from graphile_worker.client import WorkerUtils, add_job_adhoc
from graphile_worker.errors import ConfigError, InvalidArgumentError
from graphile_worker.hooks import Events, Hooks
from graphile_worker.hooks.events import JobsAdded
from graphile_worker.tasks import JobHelpers


async def test_the_event_has_specs_jobs_and_source(database_url: str) -> None:
    events = Events()
    seen: list[Any] = []
    events.on("jobs:add", seen.append)
    async with make_worker_utils(connection_string=database_url, events=events) as utils:
        plain = await utils.add_job("a", 1)
        keyed = await utils.add_job("a", 2, job_key="k")
        many = await utils.add_jobs(JobSpec("b", number) for number in range(3))
        await utils.add_jobs([JobSpec("c")], return_jobs=False)
        await utils.add_jobs([])
    assert [list(event.jobs) for event in seen] == [[plain], [keyed], many, []]
    assert [[spec.task_identifier for spec in event.specs] for event in seen] == [
        ["a"], ["a"], ["b", "b", "b"], ["c"],
    ]  # fmt: skip
    assert {event.source for event in seen} == {"client"}


async def test_there_is_no_event_if_nothing_was_added(database_url: str) -> None:
    hooks = Hooks()
    seen: list[Any] = []
    hooks.events.on(JobsAdded, seen.append)
    async with make_worker_utils(connection_string=database_url, hooks=hooks) as utils:
        with pytest.raises(InvalidArgumentError):
            await utils.add_jobs([JobSpec("a", job_key="k"), JobSpec("a", job_key="k")])
    assert seen == []


async def test_an_observer_may_come_and_go(database_url: str) -> None:
    events = Events()
    seen: list[Any] = []
    async with make_worker_utils(connection_string=database_url, events=events) as utils:
        await utils.add_job("a", 1)
        events.on(JobsAdded, seen.append)
        await utils.add_job("a", 2)
        events.off(JobsAdded, seen.append)
        await utils.add_job("a", 3)
    assert [event.jobs[0].payload for event in seen] == [2]


async def test_jobs_that_a_task_adds_come_from_the_worker(database_url: str) -> None:
    @task
    async def parent(payload: Any, helpers: JobHelpers) -> None:
        await helpers.add_job("child", 1)
        assert await helpers.add_jobs([JobSpec("child", 2)], return_jobs=False) == []

    events = Events()
    seen: list[Any] = []
    events.on(JobsAdded, seen.append)
    async with run(
        connection_string=database_url, task_list=[parent], events=events, handle_signals=False
    ) as runner:
        done: Any = events.on("job:complete", _first_future())
        await runner.add_job(JobSpec(parent, None))
        assert len(await runner.add_jobs([JobSpec("other")])) == 1
        await done.future
    assert {event.source for event in seen} == {"worker"}
    assert sorted(spec.task_identifier for event in seen for spec in event.specs) == [
        "child", "child", "other", "parent",
    ]  # fmt: skip


def _first_future() -> Any:
    import asyncio

    class First:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def __call__(self, event: Any) -> None:
            if not self.future.done():
                self.future.set_result(event)

    return First()


def test_events_and_hooks_are_not_given_together() -> None:
    with pytest.raises(ConfigError, match="both events and hooks"):
        make_worker_utils(events=Events(), hooks=Hooks())


async def test_a_whole_spec_is_added(utils: WorkerUtils, database_url: str) -> None:
    spec = JobSpec("a", {"n": 1}, queue_name="q", priority=3, flags=["f"])
    job = await utils.add_job(spec)
    assert (job.task_identifier, job.payload, job.priority, job.flags) == ("a", {"n": 1}, 3, {"f": True})
    found = await utils.jobs.get(job.id)
    assert found is not None
    assert found.queue_name == "q"
    other = await add_job_adhoc(spec, connection_string=database_url)
    assert other.id != job.id


@pytest.mark.parametrize("more", [{"payload": 1}, {"priority": 1}])
async def test_a_spec_takes_no_further_options(utils: WorkerUtils, more: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"spec: .* change its payload and options"):
        await utils.add_job(JobSpec("a"), **more)
