"""A GeneratorExit may come from a task, or close the coroutine that runs the task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from graphile_worker.hooks.faults import is_closed


async def runs(task: Callable[[], Awaitable[None]], seen: list[bool]) -> None:
    """Runs a task like the executor."""
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
def test_closing_the_coroutine_is_recognized(task: Callable[[], Awaitable[None]]) -> None:
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
