"""BackgroundTasks: whoever ends them is not cancelled, everything else is."""

from __future__ import annotations

import asyncio

from graphile_worker.worker.context import BackgroundTasks
from support.pool_parts import RecordingOwner


async def test_all_tasks_but_the_caller_are_cancelled() -> None:
    background = BackgroundTasks(RecordingOwner())
    never = asyncio.Event()
    cancelled: list[str] = []
    done = asyncio.Event()

    async def wait(name: str) -> None:
        try:
            await never.wait()
        except asyncio.CancelledError:
            cancelled.append(name)
            raise

    async def end() -> None:
        await background.cancel()
        done.set()

    for name in ("first", "second"):
        background.start(wait(name), name)
    await asyncio.sleep(0)
    background.start(end(), "end")
    async with asyncio.timeout(60):
        await done.wait()
    assert cancelled == ["first", "second"]


async def test_a_task_that_failed_does_not_matter() -> None:
    background = BackgroundTasks(RecordingOwner())

    async def fail() -> None:
        raise ValueError("no")

    background.start(fail(), "fail")
    await asyncio.sleep(0)
    await background.cancel()
