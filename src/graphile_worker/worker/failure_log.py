"""FailureLog: rate-limited log lines about an operation that keeps failing.

One line at the first failure, a reminder now and then, and one at the first success: enough to tell what is
wrong and since when, and few enough that a server that is down for a night does not fill a disk.
"""

from __future__ import annotations

import logging

from ..clock import Clock
from ..db.errors import explained
from ..schema_name import SchemaName

REMIND_AFTER = 60.0  # seconds; the pause doubles with each reminder
LONGEST_PAUSE = 3600.0

logger = logging.getLogger("graphile_worker.worker")


class FailureLog:
    """The log lines of one operation."""

    def __init__(
        self,
        clock: Clock,
        schema: SchemaName,
        failing: str,
        recovered: str,
        *,
        level: int = logging.WARNING,
    ) -> None:
        """`failing`: the line for a failure, with `%s` for the error; `recovered`: the one for success."""
        self._clock = clock
        self._schema = schema
        self._failing = failing
        self._recovered = recovered
        self._level = level
        self._since: float | None = None
        self._attempts = 0
        self._remind_after = REMIND_AFTER

    def failed(self, error: BaseException) -> None:
        """Record a failed attempt."""
        now = self._clock.monotonic()
        self._attempts += 1
        if self._since is None:
            self._since, self._remind_after = now, REMIND_AFTER
            logger.log(self._level, self._failing, explained(error, self._schema))
        elif now - self._since >= self._remind_after:
            self._remind_after += min(self._remind_after, LONGEST_PAUSE)
            why = explained(error, self._schema)
            logger.log(
                self._level,
                self._failing,
                f"{why} (for {now - self._since:.0f} s, {self._attempts} attempts)",
            )

    def succeeded(self) -> None:
        """Record a successful attempt."""
        if self._since is not None:
            logger.info("%s (after %.1f s)", self._recovered, self._clock.monotonic() - self._since)
            self._since, self._attempts = None, 0
