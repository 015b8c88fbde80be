"""LeftBehind: the tasks of one pool that did not end when their jobs were ended, and still run.

Each holds memory, perhaps a connection or a lock. When there are too many, the worker shuts down, so that its
supervisor starts another one.
"""

from __future__ import annotations

import inspect
import logging
import sys
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any

from ..error_parts import PACKAGE_FOLDER
from ..errors import WorkerUnhealthyError
from ..job import Job
from ..observability.job_context import job_fields
from ..observability.stack_log import log_with_stack
from ..tasks.call import label_of
from ..tasks.threads import TaskThreads
from .causes import Cause
from .watchdog import MAX_FRAMES, stack_of

logger = logging.getLogger("graphile_worker.worker")


class LeftBehind:
    """Counts coroutines and threads; calls `on_too_many` once there are more than `allowed`."""

    def __init__(
        self, threads: TaskThreads, allowed: int, on_too_many: Callable[[BaseException], None]
    ) -> None:
        self._threads = threads
        self._allowed = allowed
        self._on_too_many = on_too_many
        self._coroutines: dict[str, Job] = {}  # by the id of the slot that was replaced

    @property
    def names(self) -> list[str]:
        """The tasks that still run, with the ids of their jobs."""
        coroutines = (label_of(job.task_identifier, job.id) for job in self._coroutines.values())
        return [*coroutines, *self._threads.left_behind]

    def add(self, slot_id: str, job: Job, cause: Cause, coroutine: Any) -> None:
        """A coroutine ignores its cancellation; its slot was replaced."""
        self._coroutines[slot_id] = job
        log_with_stack(
            logger, logging.ERROR, job_fields(job, slot_id), _stack_of_coroutine(coroutine),
            "task %s is left behind: it did not end when it was cancelled (%s)",
            label_of(job.task_identifier, job.id), cause.reason,
        )  # fmt: skip
        self._check()

    def look_for_thread(self, job: Job, cause: Cause) -> None:
        """A job has ended after its grace; if its thread still runs, it is left behind."""
        label = label_of(job.task_identifier, job.id)
        thread = self._threads.left_behind.get(label)
        if thread is None:
            return
        log_with_stack(
            logger, logging.ERROR, job_fields(job), stack_of(sys._current_frames().get(thread)),
            "task %s is left behind: it runs in a thread, which cannot be ended (%s)", label, cause.reason,
        )  # fmt: skip
        self._check()

    def ended(self, slot_id: str) -> None:
        """The coroutine of a replaced slot has ended after all."""
        job = self._coroutines.pop(slot_id, None)
        if job is not None:
            logger.warning(
                "task %s, which was left behind, has ended; its result is dropped",
                label_of(job.task_identifier, job.id), extra=job_fields(job, slot_id),
            )  # fmt: skip

    def _check(self) -> None:
        if len(self.names) > self._allowed:
            self._on_too_many(WorkerUnhealthyError(self.names, self._allowed))


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
