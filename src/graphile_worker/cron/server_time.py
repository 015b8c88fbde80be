"""The time by which recurring jobs are due: the database server's, even if this machine's clock is wrong.

All workers share the rows that say up to when jobs were added. A worker whose clock is ahead would claim
minutes in the future, and no worker would add anything until then.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from ..clock import Clock

AGREES_WITHIN = timedelta(seconds=2)
"""A smaller difference is ignored; then this machine's clock decides when a minute begins."""

Logger = logging.Logger | logging.LoggerAdapter[logging.Logger]


class ServerTime:
    """This machine's clock, corrected by its difference from the server's if that is large enough."""

    def __init__(self, clock: Clock, logger: Logger) -> None:
        self._clock = clock
        self._logger = logger
        self._difference = timedelta(0)
        """What has to be added to the machine's time."""

    def now(self) -> datetime:
        """The server's time."""
        return self._clock.now() + self._difference

    def compare(self, asked_at: datetime, server_time: datetime, took: float) -> None:
        """Learn from the server's answer to a query that was sent at `asked_at` by our clock."""
        uncertainty = timedelta(seconds=took / 2)
        difference = server_time - (asked_at + uncertainty)
        if abs(difference) <= AGREES_WITHIN + uncertainty:
            difference = timedelta(0)
        change = abs(difference - self._difference)
        if change <= AGREES_WITHIN + uncertainty:
            return  # each measurement differs slightly
        self._difference = difference
        if not difference:
            self._logger.info("recurring jobs: the clock of this machine agrees with the server's again")
            return
        seconds = timedelta(seconds=round(abs(difference).total_seconds()))
        self._logger.warning(
            "recurring jobs: the clock of this machine is %s %s the database server's; they are added by the "
            "server's time. Correct the clock, for example with NTP",
            seconds,
            "behind" if difference > timedelta(0) else "ahead of",
        )
