"""The stack of a running job: where its coroutine waits, or what its thread does now."""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Iterator
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType
from typing import Any, Literal

import msgspec

from ..errors.text import PACKAGE_FOLDER, cut

MAX_STACK = 16_000  # characters
MAX_FRAMES = 60
MAX_CHILDREN = 5  # tasks that a job waits for at the same time
MAX_DEPTH = 5  # tasks that wait for each other


class TaskStack(msgspec.Struct, array_like=True, frozen=True):
    """What a task does: a coroutine waits at the last line of the stack, a thread runs it."""

    kind: Literal["coroutine", "thread"]
    text: str


def stack_of_task(thread: int, coroutine: asyncio.Task[Any] | None) -> TaskStack:
    """The stack of a task that runs in another thread; `coroutine`: in the event loop of that thread."""
    if coroutine is not None and asyncio.current_task(coroutine.get_loop()) is None:
        return TaskStack("coroutine", coroutine_stack(coroutine))
    return TaskStack("thread", thread_stack(thread))


def coroutine_stack(task: asyncio.Task[Any]) -> str:
    """Where a suspended asyncio task waits, the outermost call first, and where the tasks do it waits for."""
    return cut("\n".join(_of_task(task, 0)) or "  (no stack)", MAX_STACK)


def thread_stack(thread: int) -> str:
    """What a thread does now, the outermost call first."""
    frames = list(_outwards(sys._current_frames().get(thread)))
    return cut("\n".join(_lines(list(reversed(frames)))) or "  (the thread has ended)", MAX_STACK)


def _of_task(task: asyncio.Task[Any], depth: int) -> list[str]:
    lines = _lines(list(_inwards(task.get_coro())))
    if depth < MAX_DEPTH:
        awaited = _awaited(task)
        for number, child in enumerate(awaited[:MAX_CHILDREN]):
            lines.append(f"  waits for the asyncio task {child.get_name()!r}:")
            lines += _of_task(child, depth + 1)
            if number == MAX_CHILDREN - 1 and len(awaited) > MAX_CHILDREN:
                lines.append(f"  and for {len(awaited) - MAX_CHILDREN} more")
    return lines


def _awaited(task: asyncio.Task[Any]) -> list[asyncio.Task[Any]]:
    """The tasks that a task waits for, by `await` or `asyncio.gather`."""
    waiter = getattr(task, "_fut_waiter", None)
    candidates = [waiter, *(getattr(waiter, "_children", None) or ())]
    return [each for each in candidates if isinstance(each, asyncio.Task) and not each.done()]


def _inwards(awaitable: object) -> Iterator[FrameType]:
    """The frames of a coroutine and of what it awaits."""
    for _ in range(10 * MAX_FRAMES):
        if isinstance(awaitable, CoroutineType):
            frame, awaitable = awaitable.cr_frame, awaitable.cr_await
        elif isinstance(awaitable, GeneratorType):
            frame, awaitable = awaitable.gi_frame, awaitable.gi_yieldfrom
        elif isinstance(awaitable, AsyncGeneratorType):
            frame, awaitable = awaitable.ag_frame, awaitable.ag_await
        else:
            return
        if frame is not None:
            yield frame


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame and those that called it."""
    for _ in range(10 * MAX_FRAMES):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def _lines(frames: list[FrameType]) -> list[str]:
    """The frames as in a traceback, from the first one that this package has called on."""
    summary = traceback.StackSummary.extract((frame, frame.f_lineno) for frame in frames)
    ours = next((n for n, each in enumerate(summary) if each.filename.startswith(PACKAGE_FOLDER)), 0)
    first = next((n for n, each in enumerate(summary) if n >= ours and _is_of_user(each)), 0)
    shown = summary[first:][-MAX_FRAMES:]
    return "".join(traceback.StackSummary.from_list(shown).format()).rstrip().splitlines()


def _is_of_user(frame: traceback.FrameSummary) -> bool:
    is_library = frame.filename.endswith("threading.py")
    return not is_library and not frame.filename.startswith(PACKAGE_FOLDER)
