"""Tasks that tests run on clusters. They say in a file what they did."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

from graphile_worker import JobHelpers, task
from graphile_worker.tasks.task import Task

LIMIT = 3.0  # seconds: a busy cluster has begun a task by then


class Unpicklable(Exception):
    """Cannot be made from its message alone."""

    def __init__(self, code: int, *, text: str) -> None:
        super().__init__(f"{text} {code}")


def _note(payload: dict[str, Any], text: object) -> None:
    with Path(payload["file"]).open("a") as file:
        file.write(f"{text}\n")


@task(executor="cluster")
def report_there(payload: dict[str, int], helpers: JobHelpers) -> dict[str, int]:
    helpers.logger.info("at work over there")
    return {"twice": 2 * payload["n"]}


@task(executor="cluster", max_attempts=1)
def fail_there(payload: dict[str, Any]) -> None:
    raise ValueError("not there")


@task(executor="cluster", max_attempts=1)
def each_there(payload: list[int]) -> list[Any]:
    return [ValueError(f"item {item}") if item % 2 else None for item in payload]


@task(executor="cluster", max_attempts=1)
def die_there(payload: dict[str, Any]) -> None:
    _note(payload, "die")
    os.kill(os.getpid(), signal.SIGKILL)


@task(executor="cluster")
def note_there(payload: dict[str, Any]) -> None:
    _note(payload, payload["n"])


@task(executor="cluster", max_attempts=1, timeout=LIMIT)
async def wait_there(payload: dict[str, Any]) -> None:
    try:
        await asyncio.sleep(3600)
    finally:
        _note(payload, "cancelled")


@task(executor="cluster", max_attempts=1, timeout=LIMIT)
def sleep_there(payload: dict[str, Any], helpers: JobHelpers) -> None:
    helpers.abort_signal.wait_blocking(3600)
    _note(payload, "noticed")
    helpers.raise_if_aborted()


@task(executor="cluster", max_attempts=1)
def refuse_there(payload: dict[str, Any]) -> None:
    raise Unpicklable(17, text="no pickle")


@task(executor="cluster", max_attempts=1)
async def add_there(payload: dict[str, Any], helpers: JobHelpers) -> None:
    await helpers.add_job("note_there", {})


@task(executor="cluster", max_attempts=1)
def stay_there(payload: dict[str, Any], helpers: JobHelpers) -> None:
    """Ends when it is asked to."""
    helpers.sync.progress(0.5, "waiting")
    _note(payload, "stays")
    helpers.abort_signal.wait_blocking(3600)


@task(executor="cluster", max_attempts=1)
def hang_there(payload: dict[str, Any], helpers: JobHelpers) -> None:
    """Does not end."""
    helpers.sync.progress(0.5, "waiting")
    _note(payload, os.getpid())
    time.sleep(3600)


@task(executor="cluster", max_attempts=5)
def hang_once_there(payload: dict[str, Any], helpers: JobHelpers) -> None:
    _note(payload, f"attempt {helpers.job.attempts}")
    if helpers.job.attempts == 1:
        time.sleep(3600)


ALL = [value for value in globals().values() if isinstance(value, Task)]
