"""The option `expires` of `@task`: jobs that were due too long ago are deleted instead of run.

The check is part of the call of such a task, so that other tasks have none. A job that says with a flag when
it expires is checked by `check_job_expiry` instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..directives import JobDirective, check_period
from ..expiry import expiry_of
from ..job import Job
from .helpers import JobHelpers

OPTION = "expires"


class JobHasExpired(JobDirective):
    """The job was due too long ago."""

    def __init__(self, waited: float, allowed: float) -> None:
        self.waited = waited
        self.allowed = allowed
        super().__init__(waited, allowed)


def expires_after(options: Mapping[str, Any]) -> float | None:
    """The seconds that `@task(expires=…)` allows; None if it does not say. Raises InvalidArgumentError."""
    value = options.get(OPTION)
    return None if value is None else check_period(OPTION, value)


def check_expiry_first(
    invoke: Callable[[Any, JobHelpers], Any], allowed: float
) -> Callable[[Any, JobHelpers], Any]:
    """The same call, but it raises JobHasExpired for a job that waited longer than `allowed`.

    Both times are the database's, so the clock of this machine does not matter.
    """
    from ..statistics.counter import wait_of

    def invoke_unless_expired(payload: Any, helpers: JobHelpers) -> Any:
        waited = wait_of(helpers.job)
        if waited > allowed and expiry_of(helpers.job.raw_flags) is None:
            raise JobHasExpired(waited, allowed)
        return invoke(payload, helpers)

    return invoke_unless_expired


def check_job_expiry(job: Job) -> None:
    """Raise JobHasExpired if the job itself says so; both times are the database's."""
    from ..statistics.counter import wait_of

    expiry = expiry_of(job.raw_flags)
    if expiry is None or job.raw_locked_at is None:
        return
    waited = wait_of(job)
    allowed = expiry.seconds
    if not expiry.is_relative:
        allowed -= job.raw_locked_at - waited
    if waited > allowed:
        raise JobHasExpired(waited, max(0.0, allowed))
