"""Asking tasks to end, on the loop and in threads, all of them or one."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest

from graphile_worker.tasks import AbortSignal
from support.working import PATIENCE


async def test_it_is_set_once_with_its_reason() -> None:
    signal = AbortSignal()
    assert (signal.is_set(), signal.reason) == (False, "")
    signal.set("SIGTERM")
    signal.set("too late")
    assert (signal.is_set(), signal.reason) == (True, "SIGTERM")
    await asyncio.wait_for(signal.wait(), PATIENCE)


async def test_it_wakes_coroutines_and_threads_whichever_thread_sets_it() -> None:
    signal = AbortSignal()
    waiting = [asyncio.ensure_future(signal.wait()) for _ in range(3)]
    blocked = asyncio.ensure_future(asyncio.to_thread(signal.wait_blocking, 30))
    await asyncio.sleep(0)
    threading.Thread(target=signal.set).start()
    await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE)
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


def test_callbacks_are_called_once_at_once_if_it_is_late_and_never_when_removed() -> None:
    calls = []
    signal = AbortSignal()
    signal.on_set(lambda: calls.append("first"))
    remove = signal.on_set(lambda: calls.append("removed"))
    remove()
    signal.set()
    signal.set()
    signal.on_set(lambda: calls.append("late"))
    assert calls == ["first", "late"]


# -- the signal of one job ---------------------------------------------------------------------------------


def test_a_child_is_set_with_its_parent() -> None:
    parent = AbortSignal()
    before, called = parent._child(), []
    before.on_set(lambda: called.append(before.reason))
    parent.set("stopping")
    after = parent._child()
    assert [(child.is_set(), child.reason) for child in (before, after)] == [(True, "stopping")] * 2
    assert called == ["stopping"]


def test_a_child_can_be_set_alone() -> None:
    parent = AbortSignal()
    child, other = parent._child(), parent._child()
    child.set("not needed any more")
    assert [signal.is_set() for signal in (parent, child, other)] == [False, True, False]
    parent.set("stopping")
    assert (child.reason, other.reason) == ("not needed any more", "stopping")


async def test_a_child_wakes_coroutines_and_threads() -> None:
    parent = AbortSignal()
    child = parent._child()
    waiting = [
        asyncio.ensure_future(child.wait()),
        asyncio.ensure_future(asyncio.to_thread(child.wait_blocking)),
    ]
    await asyncio.sleep(0)
    parent.set("stopping")
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*waiting)


def test_a_failing_callback_hinders_no_other(caplog: pytest.LogCaptureFixture) -> None:
    parent, calls = AbortSignal(), list[str]()
    first, second = parent._child(), parent._child()

    def fails() -> None:
        raise SystemExit("broken")

    for signal in (first, second, parent):
        signal.on_set(fails)
        signal.on_set(lambda: calls.append("called"))
    parent.set("stopping")
    assert first.is_set()
    assert second.is_set()
    assert calls == ["called"] * 3
    assert caplog.text.count("a callback of an abort signal failed") == 3


def test_a_parent_does_not_keep_its_children() -> None:
    parent = AbortSignal()
    children = [parent._child() for _ in range(3)]
    assert parent._children is not None
    assert len(parent._children) == 3
    children.clear()
    gc.collect()
    assert len(parent._children) == 0


async def test_helpers_make_a_signal_only_when_asked(make_helpers: Any) -> None:
    helpers = make_helpers()
    helpers.raise_if_aborted()
    assert helpers._own_signal is None
    assert helpers.abort_signal is helpers.abort_signal
