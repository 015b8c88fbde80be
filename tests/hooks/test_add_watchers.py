"""Watchers of adds: what they see, what they may change, and that they break nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
import pytest

from graphile_worker import Job, JobSpec, SyncWorkerUtils, make_sync_worker_utils, make_worker_utils, run_once
from graphile_worker.errors import ConfigError, InvalidArgumentError, JobRefusedError
from graphile_worker.hooks import Hooks
from graphile_worker.hooks.events import JobsAdded
from support.working import Jobs


class Watcher:
    """Remembers what it saw; its state is the number of the add."""

    def __init__(self) -> None:
        self.before_calls: list[list[str]] = []
        self.after_calls: list[tuple[object, list[int] | None, str | None]] = []

    def before(self, specs: Sequence[JobSpec]) -> tuple[Sequence[JobSpec], object]:
        self.before_calls.append([spec.task_identifier for spec in specs])
        return [spec.replace(priority=7) for spec in specs], len(self.before_calls)

    def after(self, state: object, jobs: Sequence[Job] | None, error: BaseException | None) -> None:
        ids = None if jobs is None else [job.id for job in jobs]
        self.after_calls.append((state, ids, None if error is None else type(error).__name__))


@pytest.fixture
def watcher() -> Watcher:
    return Watcher()


@pytest.fixture
def hooks(watcher: Watcher) -> Hooks:
    hooks = Hooks()
    hooks.watch_adds(watcher)
    return hooks


async def test_each_add_is_seen_once_with_its_jobs_or_its_error(
    database_url: str, watcher: Watcher, hooks: Hooks
) -> None:
    seen: list[Any] = []
    hooks.events.on(JobsAdded, lambda event: seen.extend(spec.priority for spec in event.specs))
    async with make_worker_utils(connection_string=database_url, hooks=hooks) as utils:
        one = await utils.add_job("one")
        two = await utils.add_jobs([JobSpec("two"), JobSpec("three")])
        with pytest.raises(InvalidArgumentError, match=r"payload.*object"):
            await utils.add_job("four", {"a": object()})
        with pytest.raises(InvalidArgumentError, match=r"specs\[1\].payload"):
            await utils.add_jobs([JobSpec("five"), JobSpec("six", float("nan"))])
        assert await utils.add_jobs([]) == []
    assert [job.priority for job in (one, *two)] == [7, 7, 7]
    assert watcher.before_calls == [["one"], ["two", "three"], ["four"], ["five", "six"]]
    assert watcher.after_calls == [
        (1, [one.id], None),
        (2, [job.id for job in two], None),
        (3, None, "InvalidArgumentError"),
        (4, None, "InvalidArgumentError"),
    ]
    assert seen == [None, None, None]  # observers get what the caller asked for


async def test_a_generator_is_shown_in_parts_and_all_of_them_end_with_the_transaction(
    database_url: str, watcher: Watcher, hooks: Hooks
) -> None:
    async with make_worker_utils(connection_string=database_url, hooks=hooks) as utils:
        jobs = await utils.add_jobs(JobSpec("many", number) for number in range(1500))
        assert [job.payload for job in jobs] == list(range(1500))
        ids = [job.id for job in jobs]
        assert watcher.after_calls == [(1, ids[:1000], None), (2, ids[1000:], None)]

        def broken() -> Any:
            yield from (JobSpec("many", number) for number in range(1200))
            yield JobSpec("many", object())

        with pytest.raises(InvalidArgumentError):
            await utils.add_jobs(broken())
        await utils.add_jobs((JobSpec("many") for _ in range(3)), return_jobs=False)
    assert [len(call) for call in watcher.before_calls] == [1000, 500, 1000, 201, 3]
    assert watcher.after_calls[2:] == [
        (3, None, "InvalidArgumentError"),
        (4, None, "InvalidArgumentError"),
        (5, None, None),
    ]


def test_one_watcher_serves_blocking_clients_and_clients_bound_to_a_connection(
    database_url: str, watcher: Watcher, hooks: Hooks
) -> None:
    with make_sync_worker_utils(connection_string=database_url, hooks=hooks) as utils:
        first = utils.add_job("a")
        with psycopg.connect(database_url) as connection:
            bound = SyncWorkerUtils.bound(connection, hooks=hooks)
            second = bound.add_job("b")
            (third,) = bound.add_jobs([JobSpec("c")])
            fourth = utils.add_job("d", connection=connection)
    assert watcher.before_calls == [["a"], ["b"], ["c"], ["d"]]
    assert [call[1] for call in watcher.after_calls] == [[first.id], [second.id], [third.id], [fourth.id]]


async def test_a_refused_job_is_seen_with_the_refusal(
    database_url: str, watcher: Watcher, hooks: Hooks
) -> None:
    @hooks.before_add
    def refuse(spec: JobSpec) -> None:
        if spec.task_identifier == "bad":
            raise JobRefusedError("no")

    async with make_worker_utils(connection_string=database_url, hooks=hooks) as utils:
        with pytest.raises(JobRefusedError):
            await utils.add_job("bad")
        with pytest.raises(JobRefusedError):
            await utils.add_jobs([JobSpec("good"), JobSpec("bad")])
    assert watcher.before_calls == [["bad"], ["bad"]]
    assert [call[2] for call in watcher.after_calls] == ["JobRefusedError", "JobRefusedError"]


class Broken:
    """Fails before or after the add, or returns nonsense."""

    def __init__(self, where: str) -> None:
        self._where = where

    def before(self, specs: Sequence[JobSpec]) -> tuple[Sequence[JobSpec], object]:
        if self._where == "before":
            raise RuntimeError("cannot watch")
        return (() if self._where == "nonsense" else specs), None

    def after(self, state: object, jobs: Sequence[Job] | None, error: BaseException | None) -> None:
        if self._where == "after":
            raise RuntimeError("cannot watch")


@pytest.mark.parametrize("where", ["before", "after", "nonsense"])
async def test_a_watcher_that_fails_does_not_fail_the_add(
    database_url: str, watcher: Watcher, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    hooks = Hooks()
    hooks.watch_adds(Broken(where))
    hooks.watch_adds(watcher)
    async with make_worker_utils(connection_string=database_url, hooks=hooks) as utils:
        job = await utils.add_job("one")
    assert watcher.after_calls == [(1, [job.id], None)]
    assert "a watcher of adds failed: Broken" in caplog.text


def test_something_that_cannot_watch_is_refused() -> None:
    with pytest.raises(ConfigError, match="methods before and after"):
        Hooks().watch_adds(object())  # type: ignore[arg-type]


async def test_jobs_that_a_task_adds_are_seen(
    database_url: str, jobs: Jobs, watcher: Watcher, hooks: Hooks
) -> None:
    async def parent(payload: Any, helpers: Any) -> None:
        await helpers.add_job("child")

    def in_thread(payload: Any, helpers: Any) -> None:
        helpers.sync.add_job("child")

    await jobs.add("parent")
    await jobs.add("in_thread")
    await run_once(
        connection_string=database_url, task_list={"parent": parent, "in_thread": in_thread}, hooks=hooks
    )
    assert watcher.before_calls == [["child"], ["child"]]
    assert [row["priority"] for row in await jobs.all()] == [7, 7]
