"""FailureLog: what the log says about something that fails again and again.

A line when it begins, one now and then while it lasts, and one when it is over: enough to see what is wrong
and since when, and few enough that a server which is away for a night does not fill a disk.
"""

from __future__ import annotations

import logging

from ..clock import Clock
from ..db.errors import explained
from ..schema_name import SchemaName

REMIND_EVERY = 60.0  # seconds at first; twice as long each time
LONGEST_SILENCE = 3600.0

logger = logging.getLogger("graphile_worker.worker")


class FailureLog:
    """One thing that may fail for a while."""

    def __init__(
        self,
        clock: Clock,
        schema: SchemaName,
        begins: str,
        ends: str,
        *,
        level: int = logging.WARNING,
    ) -> None:
        """`begins` says what fails, and has a place for the error; `ends` says that it works again."""
        self._clock = clock
        self._schema = schema
        self._begins = begins
        self._ends = ends
        self._level = level
        self._since: float | None = None
        self._tries = 0
        self._remind_after = REMIND_EVERY

    def failed(self, error: BaseException) -> None:
        """It failed once more."""
        now = self._clock.monotonic()
        self._tries += 1
        if self._since is None:
            self._since, self._remind_after = now, REMIND_EVERY
            logger.log(self._level, self._begins, explained(error, self._schema))
        elif now - self._since >= self._remind_after:
            self._remind_after += min(self._remind_after, LONGEST_SILENCE)
            lasting = f"{explained(error, self._schema)} (for {now - self._since:.0f} s, {self._tries} tries)"
            logger.log(self._level, self._begins, lasting)

    def over(self) -> None:
        """It works."""
        if self._since is not None:
            logger.info("%s (after %.1f s)", self._ends, self._clock.monotonic() - self._since)
            self._since, self._tries = None, 0
