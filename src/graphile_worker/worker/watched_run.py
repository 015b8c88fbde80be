"""Running a job that watchers of runs see. Used only while there are any."""

from __future__ import annotations

from collections.abc import Sequence

from ..hooks import RunWatcher
from ..hooks.run_watchers import WatchedRun
from ..job import Job
from ..outcome import Outcome
from ..tasks.helpers import JobHelpers
from .around import run_inside
from .execute import Executor


async def execute_watched(
    watchers: Sequence[RunWatcher], executor: Executor, job: Job, helpers: JobHelpers
) -> Outcome:
    """Run one job, inside its `around_run` interceptors if there are any, and return its outcome."""
    watched = WatchedRun(watchers, job)
    try:
        if executor.around_run:
            outcome = await run_inside(executor, job, helpers)
        else:
            outcome = await executor.execute(job, helpers, is_wrapped=True)
    except BaseException:
        watched.ended(None)
        raise
    watched.ended(outcome)
    return executor.settled(job, outcome)
