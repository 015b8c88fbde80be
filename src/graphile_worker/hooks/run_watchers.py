"""Watchers of runs: they see each job before it runs and its outcome after that, in the context of the task.

They are synchronous and enclose everything that belongs to the run: interceptors, the decoding of the payload
and the task. Whatever a watcher raises is logged; it never fails a job.
"""

from __future__ import annotations

from typing import Protocol

from ..errors import ConfigError
from ..job import Job
from ..outcome import Outcome


class RunWatcher(Protocol):
    """Watches jobs being run: `hooks.watch_runs(watcher)`. Both methods are plain functions."""

    def before(self, job: Job) -> object:
        """Called before anything else is done for the job; returns what `after` wants to get.

        Interceptors and the task see context variables that are set here. Reset them in `after`: a slot with
        a changed context is replaced, which costs time.
        """
        ...

    def after(self, state: object, job: Job, outcome: Outcome | None) -> None:
        """Called with the outcome, before it is written; None if the run was broken off without one."""
        ...


def check_run_watcher(watcher: object) -> None:
    """Reject what has not both methods."""
    if not all(callable(getattr(watcher, name, None)) for name in ("before", "after")):
        raise ConfigError(
            f"watch_runs: expected an object with the methods before and after, got {watcher!r}"
        )
