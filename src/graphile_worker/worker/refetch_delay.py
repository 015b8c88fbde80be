"""RefetchDelay: how long a local queue pauses after a fetch that found few jobs (LQ3). Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from ..options import RefetchDelayOptions


class RefetchDelay:
    """Counts announced jobs since the last fetch, and decides when they end the delay early."""

    def __init__(
        self,
        options: RefetchDelayOptions,
        size: int,
        *,
        uniform: Callable[[float, float], float] = random.uniform,
        share: Callable[[], float] = random.random,
    ) -> None:
        self.options = options
        self._max_threshold = 5 * size if options.max_abort_threshold is None else options.max_abort_threshold
        self._uniform = uniform
        self._share = share
        self.active = False
        self.count = 0
        self.abort_threshold = math.inf
        self.fetch_wanted = False

    def fetch_begins(self) -> None:
        """Start to count announced jobs."""
        self.count = 0

    def starts_after(self, job_count: int, *, full: bool) -> float | None:
        """Seconds to pause after a fetch with this result; None for no pause."""
        if full or job_count > self.options.threshold:
            return None
        self.active = True
        self.fetch_wanted = False
        threshold = self._share() * self._max_threshold
        self.abort_threshold = threshold if threshold > 0 else math.inf
        return self.options.duration * self._uniform(0.5, 1.5)

    def announced(self, count: int) -> bool:
        """Count announced jobs; whether they end the delay."""
        self.count += count
        return self.active and self.count >= self.abort_threshold

    def ended(self) -> bool:
        """End the delay; whether a fetch was requested while it lasted."""
        self.active = False
        wanted, self.fetch_wanted = self.fetch_wanted, False
        return wanted
