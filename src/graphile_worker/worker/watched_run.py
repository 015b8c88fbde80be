"""Running a job that watchers of runs see. Used only while there are any."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ..faults import report
from ..hooks import RunWatcher
from ..job import Job
from ..outcome import Outcome
from ..tasks.helpers import JobHelpers
from .around import run_inside
from .execute import Executor

logger = logging.getLogger("graphile_worker.hooks")


async def execute_watched(
    watchers: Sequence[RunWatcher], executor: Executor, job: Job, helpers: JobHelpers
) -> Outcome:
    """Run one job, inside its `around_run` interceptors if there are any, and return its outcome."""
    states: list[tuple[RunWatcher, object]] = []
    for watcher in watchers:
        try:
            states.append((watcher, watcher.before(job)))
        except BaseException as error:
            _log_failure(watcher, job, error)
    outcome: Outcome | None = None
    try:
        if executor.around_run:
            outcome = await run_inside(executor, job, helpers)
        else:
            outcome = await executor.execute(job, helpers, is_wrapped=True)
    finally:
        for watcher, state in reversed(states):
            try:
                watcher.after(state, job, outcome)
            except BaseException as error:
                _log_failure(watcher, job, error)
    return executor.settled(job, outcome)


def _log_failure(watcher: RunWatcher, job: Job, error: BaseException) -> None:
    report(
        logger, "a watcher of runs failed for task %s (job %d): %s",
        job.task_identifier, job.id, type(watcher).__qualname__, error=error,
    )  # fmt: skip
