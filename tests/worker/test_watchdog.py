"""The watchdog of the event loop, without a database."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from graphile_worker.values.job import Job
from graphile_worker.worker.run import watchdog as module
from graphile_worker.worker.run.watchdog import Blockage, LoopWatchdog
from support.working import PATIENCE, until


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHECK_INTERVAL", 0.01)
    monkeypatch.setattr(module, "BLOCKED_AFTER", 0.05)
    monkeypatch.setattr(module, "FIRST_REMINDER", 0.1)


class FakeSlots:
    """Slots, as the watchdog sees them."""

    def __init__(self, *, is_idle: bool = False) -> None:
        self.is_idle = is_idle
        self.on_busy: Callable[[], None] | None = None


class Scene:
    """A loop, a watchdog of it, and what the watchdog reported.

    On a busy machine the loop may stand still for other reasons, which are reported too.
    """

    def __init__(self, culprit: str = "task forever (job 17)", **options: Any) -> None:
        self.culprit = culprit
        self.reported: list[Blockage] = []
        self.is_seen = threading.Event()
        self.slots = FakeSlots()
        self.watchdog = LoopWatchdog(self.slots, run_job.__code__, self, **options)
        self.turns: list[float] = []
        self._handler = logging.Handler()
        self._handler.emit = self._logged  # type: ignore[method-assign]

    @property
    def expected(self) -> list[Blockage]:
        """The reports about the culprit."""
        return [blockage for blockage in self.reported if blockage.culprit == self.culprit]

    def _logged(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith(f"{self.culprit} has blocked"):
            self.is_seen.set()

    def loop_blocked(self, blockage: Blockage) -> None: ...

    def loop_unblocked(self, blockage: Blockage, seconds: float) -> None:
        assert seconds > 0
        self.reported.append(blockage)

    def __enter__(self) -> Scene:
        module.logger.addHandler(self._handler)
        self.watchdog.start()
        self._count_turns()
        return self

    def _count_turns(self) -> None:
        """Note when the watchdog asks the loop."""
        loop: Any = asyncio.get_running_loop()
        ask = loop.call_soon_threadsafe

        def counted(*arguments: Any, **options: Any) -> Any:
            self.turns.append(time.monotonic())
            return ask(*arguments, **options)

        loop.call_soon_threadsafe = counted

    def __exit__(self, *_: object) -> None:
        self.watchdog.stop()
        module.logger.removeHandler(self._handler)


def run_job(job: Any, until_: threading.Event) -> None:
    computes_for_long(until_)


def computes_for_long(until_: threading.Event) -> None:
    assert until_.wait(PATIENCE)


@pytest.fixture
def job() -> Job:
    columns: dict[str, Any] = dict.fromkeys(Job.__struct_fields__)
    return Job(**columns | {"id": 17, "task_identifier": "forever"})


@pytest.fixture
def quiet_log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.WARNING, logger="graphile_worker"):
        yield caplog


async def test_a_blocked_loop_is_reported_with_its_job_and_the_users_own_stack(
    job: Job, quiet_log: pytest.LogCaptureFixture
) -> None:
    with Scene() as scene:
        run_job(job, scene.is_seen)
        await until(lambda: bool(scene.expected))
    (blockage,) = scene.expected
    assert blockage.job is job
    assert "computes_for_long" in blockage.stack
    assert "task forever (job 17) has blocked the event loop for" in quiet_log.text
    assert "the event loop runs again; task forever (job 17) had blocked it for" in quiet_log.text
    assert scene.watchdog.count >= 1


async def test_a_blockage_that_lasts_is_reported_again(job: Job, quiet_log: pytest.LogCaptureFixture) -> None:
    reminded = threading.Event()

    class Remind(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if quiet_log.text.count("(job 17) has blocked") >= 2:
                reminded.set()

    handler = Remind()
    module.logger.addHandler(handler)
    try:
        with Scene() as scene:
            run_job(job, reminded)
            await until(lambda: bool(scene.expected))
    finally:
        module.logger.removeHandler(handler)
    assert len(scene.expected) == 1


async def test_what_is_no_task_is_reported_without_a_job() -> None:
    with Scene("something other than a task") as scene:
        computes_for_long(scene.is_seen)
        await until(lambda: bool(scene.expected))
    assert scene.expected[0].job is None


async def test_the_thread_sleeps_while_nothing_runs_and_wakes_up_with_the_next_job(job: Job) -> None:
    with Scene() as scene:
        scene.slots.is_idle = True
        await until(lambda: scene.slots.on_busy is not None)
        asked = len(scene.turns)
        scene.slots.is_idle = False
        assert scene.slots.on_busy is not None
        scene.slots.on_busy()
        run_job(job, scene.is_seen)
        await until(lambda: bool(scene.expected))
    assert len(scene.turns) > asked
    assert scene.expected[0].job is job


async def test_the_process_is_ended_if_the_loop_is_blocked_at_the_deadline(job: Job) -> None:
    ended = threading.Event()
    blamed: list[tuple[Blockage, int]] = []

    def exit_process(blockage: Blockage, number: int) -> None:
        blamed.append((blockage, number))
        ended.set()

    with Scene(exit_process=exit_process) as scene:
        scene.watchdog.exit_by(0.5, signal.SIGTERM)
        run_job(job, ended)
    ((blockage, number),) = blamed
    assert (blockage.job, number) == (job, signal.SIGTERM)


async def test_the_process_goes_on_if_the_loop_turns_at_the_deadline(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[Blockage] = []
    with Scene(exit_process=lambda blockage, _: ended.append(blockage)) as scene:
        run_job(job, scene.is_seen)
        await until(lambda: bool(scene.expected))
        monkeypatch.setattr(module, "BLOCKED_AFTER", PATIENCE)  # a busy machine is not blocked
        for _ in range(2):
            asked = len(scene.turns)
            await until(lambda asked=asked: len(scene.turns) > asked + 3)  # type: ignore[misc]
            scene.watchdog.exit_by(0.0, signal.SIGTERM)  # asked and answered before and after the deadline
    assert ended == []
