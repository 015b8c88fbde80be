"""Supervised: what dies is logged and started again, unless it was asked to end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from graphile_worker.errors import WorkerStoppedError
from graphile_worker.hooks import faults
from graphile_worker.hooks.faults import Supervised
from support.working import PATIENCE, until


class Works:
    """Counts its runs; raises what a test has put in, one by one, and waits otherwise."""

    def __init__(self, *faults: BaseException | type[BaseException]) -> None:
        self.faults = list(faults)
        self.runs = 0
        self.is_waiting = False

    async def __call__(self) -> None:
        self.runs += 1
        if self.faults:
            raise self.faults.pop(0)
        self.is_waiting = True
        await asyncio.Event().wait()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "FIRST_DELAY", 0.001)


@pytest.mark.parametrize(
    "fault", [ValueError, asyncio.CancelledError, GeneratorExit, SystemExit, KeyboardInterrupt, BaseException]
)
async def test_it_is_started_again_whatever_it_raised(
    caplog: pytest.LogCaptureFixture, fault: type[BaseException]
) -> None:
    works = Works(fault("as asked"))
    task = Supervised(works, "something")
    task.start()
    await until(lambda: works.is_waiting)
    assert works.runs == 2
    assert "the asyncio task 'something' ended unexpectedly and is started again" in caplog.text
    assert "as asked" in caplog.text
    assert "Traceback" in caplog.text
    assert not task.is_dead
    await task.stop()


async def test_it_is_started_again_after_a_cancellation_by_others(caplog: pytest.LogCaptureFixture) -> None:
    works = Works()
    task = Supervised(works, "something")
    task.start()
    await until(lambda: works.is_waiting)
    (running,) = [each for each in asyncio.all_tasks() if each.get_name() == "graphile-worker something"]
    running.cancel()
    await until(lambda: works.runs == 2)
    assert "started again" in caplog.text
    await task.stop()
    assert task.is_done


async def test_one_that_keeps_dying_is_given_up() -> None:
    errors: list[BaseException] = []
    works = Works(*[ValueError("no")] * 100)
    task = Supervised(works, "something", on_fatal=errors.append)
    task.start()
    async with asyncio.timeout(PATIENCE):
        await task.wait()
    assert works.runs == faults.MOST_DEATHS + 1
    assert [str(error) for error in errors] == ["no"]


@pytest.mark.parametrize("fault", [SystemExit(3), GeneratorExit("closed"), asyncio.CancelledError()])
async def test_what_it_is_given_up_for_can_be_raised_to_a_caller(fault: BaseException) -> None:
    errors: list[BaseException] = []
    task = Supervised(Works(*[fault] * 100), "something", on_fatal=errors.append)
    task.start()
    async with asyncio.timeout(PATIENCE):
        await task.wait()
    [error] = errors
    assert isinstance(
        error, WorkerStoppedError if isinstance(fault, asyncio.CancelledError) else RuntimeError
    )


@pytest.mark.parametrize("end", [lambda task: task.stop(), lambda task: task.end(within=0.01)])
async def test_it_ends_when_it_is_asked_to(
    caplog: pytest.LogCaptureFixture, end: Callable[[Supervised], asyncio.Future[None]]
) -> None:
    works = Works()
    task = Supervised(works, "something")
    task.start()
    await until(lambda: works.is_waiting)
    async with asyncio.timeout(PATIENCE):
        await end(task)
    assert task.is_done
    assert not task.is_dead
    assert not caplog.records


async def test_one_that_died_is_not_started_again_once_it_may_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "FIRST_DELAY", PATIENCE)
    works = Works(ValueError("no"))
    task = Supervised(works, "something")
    task.start()
    await until(lambda: task.is_dead)
    async with asyncio.timeout(PATIENCE):
        await task.end()
    assert task.is_done


async def test_work_that_returns_is_over() -> None:
    async def work() -> None:
        pass

    task = Supervised(work, "something")
    task.start()
    async with asyncio.timeout(PATIENCE):
        await task.wait()


async def test_a_log_handler_that_raises_does_not_keep_it_from_being_started(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    class Breaks(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise SystemExit("no disk")

    breaks, logger = Breaks(), logging.getLogger("graphile_worker.worker")
    logger.addFilter(breaks)
    request.addfinalizer(lambda: logger.removeFilter(breaks))
    works = Works(ValueError("no"))
    task = Supervised(works, "something")
    task.start()
    await until(lambda: works.is_waiting)
    assert "no disk" in capsys.readouterr().err
    await task.stop()
