"""Tasks that tests run in processes. They say in a file what they did."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ctypes
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from executors.trees import keep_the_interpreter
from graphile_worker import GiveUp, JobHelpers, Snooze, task
from graphile_worker.tasks.task import AnyTask

PATIENCE = 60.0
trace: contextvars.ContextVar[str] = contextvars.ContextVar("trace", default="none")


class Unpicklable(Exception):
    """Cannot be made from its message alone."""

    def __init__(self, code: int, *, text: str) -> None:
        super().__init__(f"{text} {code}")


@contextlib.contextmanager
def restored(text: str) -> Iterator[None]:
    token = trace.set(text)
    yield
    trace.reset(token)


def _note(payload: dict[str, Any], text: object) -> None:
    with Path(payload["file"]).open("a") as file:
        file.write(f"{text}\n")


def _lines(payload: dict[str, Any]) -> int:
    return len(Path(payload["file"]).read_text().splitlines())


@task(executor="process")
def note(payload: dict[str, Any]) -> None:
    """Waits until the file has some lines, if the payload says so, but not without limit."""
    end = time.monotonic() + PATIENCE
    while "after" in payload and _lines(payload) < payload["after"] and time.monotonic() < end:
        time.sleep(0.01)
    _note(payload, payload["n"])


@task(executor="process", max_attempts=1)
def crash(payload: dict[str, Any]) -> None:
    _note(payload, payload["how"])
    match payload["how"]:
        case "SIGKILL":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segfault":
            ctypes.string_at(0)
        case "exit":
            os._exit(7)


@task(executor="process", max_attempts=1)
def leave(payload: dict[str, Any]) -> None:
    sys.exit("no more")


@task(executor="process", max_attempts=3, dont_retry=LookupError)
def look_up(payload: dict[str, Any]) -> None:
    raise KeyError("sku") from ValueError("the cause")


@task(executor="process", max_attempts=1)
def refuse(payload: dict[str, Any]) -> None:
    raise Unpicklable(17, text="no pickle")


@task(executor="process", max_attempts=3)
def give_up(payload: dict[str, Any]) -> object:
    return GiveUp("the card is stolen") if payload.get("give_up") else Snooze(3600)


@task(executor="process", max_attempts=2)
def each(payload: list[int]) -> list[Any]:
    return [ValueError(f"item {item}") if item % 2 else None for item in payload]


@task(executor="process", keep=True)
async def report(payload: dict[str, Any], helpers: JobHelpers) -> dict[str, Any]:
    helpers.logger.warning("at work in %s", "a process")
    logging.getLogger("shop").warning("sold %d", 3)
    await helpers.progress(0.5, "half")
    return {"pid": os.getpid(), "trace": trace.get(), "attempt": helpers.job.attempts}


@task(executor="process", max_attempts=1)
async def add_another(payload: dict[str, Any], helpers: JobHelpers) -> None:
    await helpers.add_job("note", {})


@task(executor="process", timeout=0.3, max_attempts=1)
def count_for_ever(payload: dict[str, Any]) -> None:
    _note(payload, os.getpid())
    keep_the_interpreter()


@task(executor="process")
def count_once(payload: dict[str, Any]) -> None:
    """Does not end the first time, in C code that keeps the interpreter to itself."""
    if _lines(payload):
        _note(payload, "elsewhere")
    else:
        _note(payload, os.getpid())
        keep_the_interpreter()


@task(executor="process", max_attempts=1)
async def wait_until_told(payload: dict[str, Any], helpers: JobHelpers) -> None:
    await helpers.progress(0.25, "a quarter")
    _note(payload, "waits")
    await helpers.abort_signal.wait()
    if payload.get("ignores"):
        await asyncio.sleep(3600)


@task(executor="process", max_attempts=1)
def sleep_until_told(payload: dict[str, Any], helpers: JobHelpers) -> None:
    _note(payload, "sleeps")
    helpers.abort_signal.wait_blocking(3600)


@task(executor="process", timeout=0.3, max_attempts=1)
def sleep_for_ever(payload: dict[str, Any]) -> None:
    try:
        time.sleep(3600)
    finally:
        _note(payload, "cleaned up")


@task(executor="process", timeout=0.3, max_attempts=1)
async def wait_for_ever(payload: dict[str, Any]) -> None:
    try:
        await asyncio.sleep(3600)
    finally:
        _note(payload, "cancelled")


@task(executor="process", timeout=0.3, max_attempts=1)
def wait_in_items(payload: list[dict[str, Any]]) -> list[Any]:
    return [_item(payload[0], 0), _item(payload[1], 100)]


async def _item(payload: dict[str, Any], steps: int) -> None:
    try:
        await asyncio.sleep(3600)
    finally:
        for _ in range(steps):
            await asyncio.sleep(0)
        _note(payload, f"cancelled after {steps}")


@task(executor="process")
def use_memory(payload: dict[str, Any]) -> None:
    _note(payload, os.getpid())
    kept.append(b"x" * payload["bytes"])


kept: list[bytes] = []


def all_tasks() -> list[AnyTask]:
    return [value for value in globals().values() if isinstance(value, type(note))]


@task(executor="process")
def meet(payload: dict[str, Any]) -> None:
    """Says that it runs, and waits until enough others have, but not without limit."""
    _note(payload, payload["n"])
    end = time.monotonic() + PATIENCE
    while _lines(payload) < payload["after"] and time.monotonic() < end:
        time.sleep(0.01)
