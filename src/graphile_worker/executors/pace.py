"""Pace: how long tasks run, so that short calls are sent several at a time.

A round trip costs more than a short task. Calls are sent ahead for as long as they will probably take
together, a few milliseconds; a task that is not known yet gets a process for itself.
"""

from __future__ import annotations

AHEAD = 0.002
"""Seconds of work in a process, beyond which it gets no further call."""
MOST = 64
"""Calls in a process."""
UNKNOWN = 1.0
"""Seconds to expect of a task that has not run yet."""
PATIENCE = 0.01
"""Seconds after which the calls behind a slow one are taken back."""
OVERHEAD = 0.00002
"""Seconds that each call costs a process."""


class ProcessPace:
    """The usual run time of each task, by identifier."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def expected(self, identifier: str) -> float:
        """Seconds that a call will probably take."""
        return self._seconds.get(identifier, UNKNOWN)

    def ran(self, identifier: str, seconds: float) -> None:
        """Learn from a call; slower ones count for more, because others wait behind them."""
        seconds += OVERHEAD
        known = self._seconds.get(identifier, seconds)
        share = 0.5 if seconds > known else 0.1
        self._seconds[identifier] = known + share * (seconds - known)
