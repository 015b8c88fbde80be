"""RefetchDelay: when a local queue rests after a fetch that found little (LQ3). Decides; does not wait."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from ..options import RefetchDelayOptions


class RefetchDelay:
    """Counts what was announced since the fetch began and says when the rest must end early."""

    def __init__(
        self,
        options: RefetchDelayOptions,
        size: int,
        *,
        uniform: Callable[[float, float], float] = random.uniform,
        share: Callable[[], float] = random.random,
    ) -> None:
        self.options = options
        self._largest = 5 * size if options.max_abort_threshold is None else options.max_abort_threshold
        self._uniform = uniform
        self._share = share
        self.active = False
        self.count = 0
        self.abort_threshold = math.inf
        self.fetch_wanted = False

    def fetch_begins(self) -> None:
        """Announcements count from here."""
        self.count = 0

    def starts_after(self, job_count: int, *, full: bool) -> float | None:
        """Seconds to rest after a fetch with this result, or None to go on."""
        if full or job_count > self.options.threshold:
            return None
        self.active = True
        self.fetch_wanted = False
        threshold = self._share() * self._largest
        self.abort_threshold = threshold if threshold > 0 else math.inf
        return self.options.duration * self._uniform(0.5, 1.5)

    def announced(self, count: int) -> bool:
        """So many jobs were announced; whether that ends the rest."""
        self.count += count
        return self.active and self.count >= self.abort_threshold

    def ended(self) -> bool:
        """The rest is over; whether a fetch was asked for meanwhile."""
        self.active = False
        wanted, self.fetch_wanted = self.fetch_wanted, False
        return wanted
