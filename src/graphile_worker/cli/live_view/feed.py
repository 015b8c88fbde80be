"""FeedPlugin: reports the worker's activity to its parent process, as JSON lines through a pipe."""

from __future__ import annotations

import asyncio
import os
import time

import msgspec

from ...error_text import summarize
from ...hooks import Hooks
from ...hooks.events import (
    JobCancelled,
    JobCompleted,
    JobErrored,
    JobExpired,
    JobInterrupted,
    JobOutcomeDiscarded,
    JobSnoozed,
    JobStarted,
    JobSucceeded,
    PoolCreated,
    PoolReleased,
)
from .activity import Activity, Snapshot, error_of

INTERVAL = 0.25
ATOMIC_WRITE = 4096
"""A pipe takes a write of at most this many bytes completely or not at all."""


class FeedPlugin:
    """Observes jobs and writes a snapshot four times a second."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._activity = Activity()
        self._task: asyncio.Task[None] | None = None

    def install(self, hooks: Hooks) -> None:
        os.set_blocking(self._descriptor, False)  # a parent that does not read must not block the worker
        on = hooks.events.on
        on(JobStarted, self._on_started)
        on(JobSucceeded, lambda _: self._activity.completed())
        on(JobErrored, self._on_errored)
        on(JobCompleted, lambda event: self._activity.ended(event.job.id))
        on(JobInterrupted, lambda event: self._activity.ended(event.job.id))
        on(JobSnoozed, lambda event: self._activity.ended(event.job.id))
        on(JobExpired, lambda event: self._activity.ended(event.job.id))
        on(JobCancelled, lambda event: self._activity.ended(event.job.id))
        on(JobOutcomeDiscarded, lambda event: self._activity.ended(event.job.id))
        on(PoolCreated, self._on_created)
        on(PoolReleased, self._on_released)

    def _on_started(self, event: JobStarted) -> None:
        self._activity.started(event.job.id, event.job.task_identifier, time.monotonic())

    def _on_errored(self, event: JobErrored) -> None:
        job = event.job
        self._activity.failed(
            error_of(
                time.time(),
                job.id,
                job.task_identifier,
                job.attempts,
                job.max_attempts,
                summarize(event.error),
            )
        )

    def _on_created(self, _: PoolCreated) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="graphile-worker feed")

    def _on_released(self, _: PoolReleased) -> None:
        if self._task is not None:
            self._task.cancel()
        self._write()

    async def _run(self) -> None:
        while True:
            self._write()
            await asyncio.sleep(INTERVAL)

    def _write(self) -> None:
        try:
            os.write(self._descriptor, encode(self._activity.snapshot(time.monotonic())))
        except (BlockingIOError, BrokenPipeError):  # the next snapshot replaces it, or the parent is gone
            return


def encode(snapshot: Snapshot) -> bytes:
    """One line that fits into an atomic write; excess jobs and errors are dropped."""
    while len(line := msgspec.json.encode(snapshot)) >= ATOMIC_WRITE:
        keep = max(len(snapshot.jobs), len(snapshot.errors)) // 2
        snapshot = msgspec.structs.replace(
            snapshot, jobs=snapshot.jobs[:keep], errors=snapshot.errors[-keep:] if keep else []
        )
    return line + b"\n"


def decode(line: str) -> Snapshot:
    """The inverse of `encode`."""
    return msgspec.json.decode(line, type=Snapshot)
