"""RateLimit: limits how many jobs with a flag start per second, with `forbidden_flags`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from graphile_worker import Job
from graphile_worker.hooks import Hooks
from graphile_worker.hooks.events import JobStarted


class RateLimit:
    """A token bucket: gains `rate` tokens per second, up to `burst`; each job with the flag takes one."""

    def __init__(
        self, flag: str, *, rate: float, burst: int = 1, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.flag = flag
        self.rate = rate
        self.burst = burst
        self._clock = clock
        self._tokens = float(burst)
        self._filled_at = clock()

    @property
    def is_used_up(self) -> bool:
        self._fill()
        return self._tokens < 1

    def started(self, job: Job) -> None:
        if job.flags and self.flag in job.flags:
            self._fill()
            self._tokens -= 1

    def _fill(self) -> None:
        now = self._clock()
        self._tokens = min(self.burst, self._tokens + (now - self._filled_at) * self.rate)
        self._filled_at = now


class RateLimits:
    """A plugin with several limits; pass `forbidden` as the `forbidden_flags` of the same worker."""

    def __init__(self, limits: Iterable[RateLimit]) -> None:
        self.limits = list(limits)

    def install(self, hooks: Hooks) -> None:
        hooks.events.on(JobStarted, self._started)

    def forbidden(self) -> list[str]:
        return [limit.flag for limit in self.limits if limit.is_used_up]

    def _started(self, event: JobStarted) -> None:
        for limit in self.limits:
            limit.started(event.job)
