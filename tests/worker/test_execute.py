"""Which GeneratorExit is a task's own, and which one closes the coroutine that runs the task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from graphile_worker.worker.execute import is_closed


async def runs(task: Callable[[], Awaitable[None]], seen: list[bool]) -> None:
    """As the executor does it."""
    try:
        await task()
    except BaseException as error:
        seen.append(is_closed(error))
        raise


async def waits() -> None:
    await asyncio.sleep(0)


async def waits_and_raises() -> None:
    await asyncio.sleep(0)
    raise GeneratorExit


@pytest.mark.parametrize("task", [waits, waits_and_raises])
def test_a_coroutine_that_is_closed_is_told_so(task: Callable[[], Awaitable[None]]) -> None:
    seen: list[bool] = []
    coroutine = runs(task, seen)
    coroutine.send(None)
    coroutine.close()
    assert seen == [True]


def test_a_task_that_raises_it_does_not_close_the_coroutine() -> None:
    seen: list[bool] = []
    coroutine = runs(waits_and_raises, seen)
    coroutine.send(None)
    with pytest.raises(GeneratorExit):
        coroutine.send(None)
    assert seen == [False]
