"""Telling tasks to end, on the loop and in threads."""

from __future__ import annotations

import asyncio
import threading

from graphile_worker.tasks import AbortSignal


async def test_it_is_set_once_with_its_reason() -> None:
    signal = AbortSignal()
    assert (signal.is_set(), signal.reason) == (False, "")
    signal.set("SIGTERM")
    signal.set("too late")
    assert (signal.is_set(), signal.reason) == (True, "SIGTERM")
    await asyncio.wait_for(signal.wait(), 10)


async def test_it_wakes_coroutines_and_threads_whichever_thread_sets_it() -> None:
    signal = AbortSignal()
    waiting = [asyncio.ensure_future(signal.wait()) for _ in range(3)]
    blocked = asyncio.ensure_future(asyncio.to_thread(signal.wait_blocking, 30))
    await asyncio.sleep(0)
    threading.Thread(target=signal.set).start()
    await asyncio.wait_for(asyncio.gather(*waiting), 10)
    assert await blocked is True


def test_waiting_in_a_thread_can_have_a_limit() -> None:
    assert AbortSignal().wait_blocking(0.001) is False


async def test_a_waiter_that_gives_up_is_forgotten() -> None:
    signal = AbortSignal()
    waiting = asyncio.ensure_future(signal.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    signal.set()
    assert waiting.cancelled()


def test_callbacks_are_called_once_at_once_if_it_is_late_and_never_when_forgotten() -> None:
    calls = []
    signal = AbortSignal()
    signal.on_set(lambda: calls.append("first"))
    forget = signal.on_set(lambda: calls.append("forgotten"))
    forget()
    signal.set()
    signal.set()
    signal.on_set(lambda: calls.append("late"))
    assert calls == ["first", "late"]
