"""Plugins are started and stopped with their worker; one that fails hinders nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from graphile_worker.errors import PluginError
from graphile_worker.hooks import Hooks, WorkerContext
from graphile_worker.values.job import Job
from graphile_worker.values.options import WorkerOptions
from support.cases import looped
from support.working import Jobs, Workers, until


class Recorded:
    """A plugin that writes down what is done with it."""

    def __init__(
        self,
        name: str,
        steps: list[str],
        *,
        start_error: BaseException | None = None,
        stop_error: BaseException | None = None,
    ) -> None:
        self.name = name
        self.steps = steps
        self.start_error = start_error
        self.stop_error = stop_error
        self.workers: list[WorkerContext] = []

    def install(self, hooks: Hooks) -> None:
        self.steps.append(f"install {self.name}")

    async def start(self, worker: WorkerContext) -> None:
        self.workers.append(worker)
        await asyncio.sleep(0)
        self.steps.append(f"start {self.name}")
        if self.start_error is not None:
            raise self.start_error

    async def stop(self) -> None:
        await asyncio.sleep(0)
        self.steps.append(f"stop {self.name}")
        if self.stop_error is not None:
            raise self.stop_error


class OnlyInstall:
    def install(self, hooks: Hooks) -> None:
        pass


class OnlyStart(OnlyInstall):
    is_started = False

    async def start(self, worker: WorkerContext) -> None:
        self.is_started = True


class OnlyStop(OnlyInstall):
    is_stopped = False

    async def stop(self) -> None:
        self.is_stopped = True


class IdlePool:
    running: Sequence[Job] = ()
    concurrency = 1
    is_listening = True
    seconds_since_answer = 0.0
    stalled_since = None


def context(hooks: Hooks) -> WorkerContext:
    return WorkerContext(pool_id="pool-1", hooks=hooks, options=WorkerOptions(), pool=IdlePool())


async def test_plugins_start_in_order_and_stop_in_reverse() -> None:
    steps: list[str] = []
    first, second = Recorded("first", steps), Recorded("second", steps)
    hooks = Hooks(plugins=[first, OnlyInstall()])
    hooks.install(second)
    worker = context(hooks)
    await hooks.start_plugins(worker)
    await hooks.start_plugins(worker)  # they are started already
    await hooks.stop_plugins()
    await hooks.stop_plugins()
    assert steps == [
        *("install first", "install second", "start first", "start second"),
        *("stop second", "stop first"),
    ]
    assert first.workers == [worker]
    assert worker.events is hooks.events


async def test_start_and_stop_are_optional() -> None:
    starts, stops = OnlyStart(), OnlyStop()
    hooks = Hooks(plugins=[OnlyInstall(), starts, stops])
    await hooks.start_plugins(context(hooks))
    await hooks.stop_plugins()
    assert starts.is_started
    assert stops.is_stopped


async def test_a_plugin_that_fails_to_start_stops_those_before_it() -> None:
    steps: list[str] = []
    broken = Recorded("broken", steps, start_error=OSError("port 80 is in use"))
    hooks = Hooks(plugins=[Recorded("first", steps), broken, Recorded("last", steps)])
    with pytest.raises(PluginError, match="plugin Recorded failed to start: OSError: port 80") as caught:
        await hooks.start_plugins(context(hooks))
    assert caught.value.plugin == "Recorded"
    assert caught.value.__cause__ is broken.start_error
    assert steps[3:] == ["start first", "start broken", "stop first"]
    await hooks.stop_plugins()
    assert steps[-1] == "stop first"


@looped(
    ("error", "raised"),
    [
        (SystemExit(3), SystemExit),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (asyncio.CancelledError(), PluginError),  # nobody has cancelled the start
        (GeneratorExit(), PluginError),
    ],
)
async def test_a_start_that_is_cut_short_stops_the_others_too(
    error: BaseException, raised: type[BaseException]
) -> None:
    steps: list[str] = []
    hooks = Hooks(plugins=[Recorded("first", steps), Recorded("broken", steps, start_error=error)])
    with pytest.raises(raised):
        await hooks.start_plugins(context(hooks))
    assert steps[-1] == "stop first"


@pytest.mark.parametrize("kind", [OSError, asyncio.CancelledError, GeneratorExit])
async def test_a_plugin_that_fails_to_stop_is_logged(
    caplog: pytest.LogCaptureFixture, kind: type[BaseException]
) -> None:
    steps: list[str] = []
    hooks = Hooks(plugins=[Recorded("first", steps), Recorded("broken", steps, stop_error=kind("disk full"))])
    await hooks.start_plugins(context(hooks))
    await hooks.stop_plugins()
    assert steps[-2:] == ["stop broken", "stop first"]
    assert "plugin Recorded failed to stop" in caplog.text
    assert "disk full" in caplog.text


async def test_sys_exit_in_a_stop_is_raised_after_the_others_have_stopped() -> None:
    steps: list[str] = []
    hooks = Hooks(plugins=[Recorded("first", steps), Recorded("exits", steps, stop_error=SystemExit(3))])
    await hooks.start_plugins(context(hooks))
    with pytest.raises(SystemExit):
        await hooks.stop_plugins()
    assert steps[-2:] == ["stop exits", "stop first"]


async def test_a_stop_that_hangs_is_given_up(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hangs(OnlyInstall):
        async def stop(self) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr("graphile_worker.hooks.hooks.STOP_WITHIN", 0.0)
    first = OnlyStop()
    hooks = Hooks(plugins=[first, Hangs()])
    await hooks.start_plugins(context(hooks))
    await hooks.stop_plugins()
    assert first.is_stopped
    assert "plugin Hangs failed to stop" in caplog.text


async def test_a_run_starts_its_own_plugins_and_those_of_its_hooks(jobs: Jobs, workers: Workers) -> None:
    steps: list[str] = []
    shared, own = Recorded("shared", steps), Recorded("own", steps)
    hooks = Hooks(plugins=[shared])

    async def job1() -> None:
        steps.append("job")

    await jobs.add("job1")
    runner = await workers.start({"job1": job1}, hooks=hooks, plugins=[own], concurrency=2)
    assert shared.workers[0].pool_id == own.workers[0].pool_id == runner.pool_id
    assert own.workers[0].options.concurrency == 2
    await until(lambda: "job" in steps)
    await workers.stop(runner)
    assert steps == [
        *("install shared", "install own", "start shared", "start own", "job"),
        *("stop own", "stop shared"),
    ]
    await workers.once({"job1": job1}, hooks=hooks)  # nothing is queued, and still it is started
    assert steps[7:] == ["start shared", "stop shared"]


async def test_a_worker_whose_plugin_fails_to_start_takes_no_job(jobs: Jobs, workers: Workers) -> None:
    steps: list[str] = []
    broken = Recorded("broken", steps, start_error=OSError("port 80 is in use"))

    async def job1() -> None:
        steps.append("job")

    await jobs.add("job1")
    with pytest.raises(PluginError, match="port 80 is in use"):
        await workers.start({"job1": job1}, plugins=[Recorded("first", steps), broken])
    assert "job" not in steps
    assert steps[-1] == "stop first"
    assert await jobs.locked() == 0
