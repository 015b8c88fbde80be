"""JobTermination: ends one running job before its task does.

The task is asked first, by its abort signal, and cancelled if it runs on the event loop. After the grace it
is cancelled once more. What still does not end is abandoned: its slot is replaced and the outcome is written
without it. A thread cannot be cancelled, so it has the grace to notice its signal, and leaks then.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import secrets
import sys
import traceback
from collections.abc import Callable
from contextvars import Context
from types import FrameType
from typing import Any

from ...errors import WorkerUnhealthyError
from ...errors.text import PACKAGE_FOLDER
from ...logging.job_context import job_fields
from ...logging.log_plugin import log_with_stack
from ...tasks.call import label_of
from ...tasks.helpers import JobHelpers, current_helpers
from ...tasks.threads import TaskThreads
from ...values.job import Job
from ..context import Owner
from .execute import Executor
from .outcomes import EndReason
from .watchdog import MAX_FRAMES, stack_of

LAST_CHANCE = 1.0  # seconds between the second cancellation and the end of the wait
HANDOVER = 0.05  # seconds for the result of a thread that has just ended to reach the event loop

logger = logging.getLogger("graphile_worker.worker")


class Slot:
    """One slot: its id, the job it runs, and the asyncio task that drives it."""

    __slots__ = (
        "alarm", "alarm_at", "context", "early_end", "id", "idle", "is_abandoned", "job", "started", "task"
    )  # fmt: skip

    def __init__(self) -> None:
        self.id = f"worker-{secrets.token_hex(9)}"
        self.job: Job | None = None
        self.started = 0.0
        self.early_end: JobTermination | None = None
        """Of the running job, if it is being ended or its time is up."""
        self.alarm: asyncio.TimerHandle | None = None
        """Goes off when the time of a job may be up: of the running one, or of one before it."""
        self.alarm_at = 0.0
        self.is_abandoned = False
        self.idle: asyncio.Future[None] | None = None
        self.task: asyncio.Task[bool] | None = None
        self.context: Context | None = None


class JobTermination:
    """The end of one attempt; `stop` it when the attempt has ended."""

    __slots__ = ("_abandon", "_executor", "_timer", "_waits", "is_late", "job", "slot")

    def __init__(
        self, slot: Slot, job: Job, executor: Executor, abandon: Callable[[JobTermination], None]
    ) -> None:
        self.slot = slot
        self._executor = executor
        self._abandon = abandon
        self._waits = False
        self._timer: asyncio.TimerHandle | None = None
        self.job = job
        self.is_late = False
        """Whether the task has used up its grace."""

    @property
    def cause(self) -> EndReason | None:
        """Why the job is ended; None if it is not."""
        cause: EndReason | None = self._helpers._cause
        return cause

    @property
    def call(self) -> Any:
        """The `TaskCall` of a job that an executor runs; None for others."""
        return self._helpers._call

    @property
    def _helpers(self) -> JobHelpers:
        assert self.slot.context is not None  # noqa: S101 - set while the slot runs
        return self.slot.context[current_helpers]

    def schedule(self, delay: float, begin: Callable[[], None]) -> None:
        """Call `begin` after this many seconds, unless the attempt ends first."""
        self._timer = asyncio.get_running_loop().call_later(delay, begin)

    def begin(self, cause: EndReason, grace: float, *, waits: bool = False) -> None:
        """Ask the task to end, and see to it that the slot is free soon after the grace.

        `waits`: never abandon it, however long it takes to end.
        """
        helpers, known = self._helpers, self.cause
        if known is not None:
            if cause.rank > known.rank:
                helpers.abort_signal._cause = cause
            return
        self.stop()
        self._waits = waits
        helpers._end_early(cause, grace)
        # A plain function is in a thread, or a hook runs, or what the function returned.
        if self._executor.is_async(self.job) or helpers._in_thread is None:
            self._cancel()
        self.schedule(grace, self._escalate)

    def stop(self) -> None:
        """The attempt has ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def has_thread_ended(self) -> bool:
        """Whether the function has returned in its thread, and its result is on its way; or has not begun."""
        call = self._helpers._in_thread
        return call is not None and (call.done() or not self._executor.is_in_thread(self.job))

    def _escalate(self) -> None:
        if self.has_thread_ended:  # a cancellation would take the result from it
            self.schedule(HANDOVER, self._escalate)
            return
        if self._waits:
            job, cause = self.job, self.cause
            logger.warning(
                "task %s (job %d) still runs; its slot waits for it (%s)",
                job.task_identifier, job.id, "" if cause is None else cause.reason, extra=job_fields(job),
            )  # fmt: skip
            return
        self.is_late = True
        self._cancel()
        self.schedule(LAST_CHANCE, lambda: self._abandon(self))

    def _cancel(self) -> None:
        if self.slot.job is self.job and self.slot.task is not None:
            self.slot.task.cancel()


class LeakedTasks:
    """Counts coroutines and threads; the pool dies once there are more than `allowed`.

    Each holds memory, perhaps a connection or a lock. When there are too many, the worker shuts down, so
    that its supervisor starts another one.
    """

    def __init__(self, threads: TaskThreads, allowed: int, owner: Owner) -> None:
        self._threads = threads
        self._allowed = allowed
        self._owner = owner
        self._coroutines: dict[str, Job] = {}  # by the id of the slot that was replaced

    @property
    def names(self) -> list[str]:
        """The tasks that still run, with the ids of their jobs."""
        coroutines = (label_of(job.task_identifier, job.id) for job in self._coroutines.values())
        return [*coroutines, *self._threads.leaked]

    def add(self, slot_id: str, job: Job, cause: EndReason, coroutine: Any) -> None:
        """A coroutine ignores its cancellation; its slot was replaced."""
        self._coroutines[slot_id] = job
        log_with_stack(
            logger, logging.ERROR, job_fields(job, slot_id), _stack_of_coroutine(coroutine),
            "task %s leaked: it ignored its cancellation and still runs (%s)",
            label_of(job.task_identifier, job.id), cause.reason,
        )  # fmt: skip
        self._check()

    def look_for_thread(self, job: Job, cause: EndReason) -> None:
        """A job has ended after its grace; if its thread still runs, it leaks."""
        label = label_of(job.task_identifier, job.id)
        thread = self._threads.leaked.get(label)
        if thread is None:
            return
        log_with_stack(
            logger, logging.ERROR, job_fields(job), stack_of(sys._current_frames().get(thread)),
            "task %s leaked: it runs in a thread, which cannot be ended (%s)", label, cause.reason,
        )  # fmt: skip
        self._check()

    def ended(self, slot_id: str) -> None:
        """The coroutine of a replaced slot has ended after all."""
        job = self._coroutines.pop(slot_id, None)
        if job is not None:
            logger.warning(
                "task %s, which leaked, has ended; its result is dropped",
                label_of(job.task_identifier, job.id), extra=job_fields(job, slot_id),
            )  # fmt: skip

    def _check(self) -> None:
        if len(self.names) > self._allowed:
            self._owner.die(WorkerUnhealthyError(self.names, self._allowed), "run")


def _stack_of_coroutine(coroutine: Any) -> str:
    """Where a suspended coroutine is, without the frames of this package."""
    frames: list[tuple[FrameType, int]] = []
    while inspect.iscoroutine(coroutine):
        frame = coroutine.cr_frame
        if frame is not None and not frame.f_code.co_filename.startswith(PACKAGE_FOLDER):
            frames.append((frame, frame.f_lineno))
        coroutine = coroutine.cr_await
    if not frames:
        return "  (no stack)"
    return "".join(traceback.StackSummary.extract(iter(frames[-MAX_FRAMES:])).format()).rstrip()
