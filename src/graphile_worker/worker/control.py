"""ControlWatch: learns what operators ask of a running pool: which tasks are paused, which jobs to cancel.

The state is in tables. A notification on the channel `worker:py` only says that it has changed. The watch
also looks every few seconds, so a lost notification, or a pooler that cannot LISTEN, delays it no longer than
that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from .. import sqlstates
from ..db.errors import explained, sqlstate_of
from ..error_text import message_of
from ..queries.control import NOTHING_ASKED, ControlState

LOOK_INTERVAL = 5.0  # seconds
REFUSED = (sqlstates.INSUFFICIENT_PRIVILEGE, sqlstates.UNDEFINED_TABLE)

logger = logging.getLogger("graphile_worker.worker")


class ControlWatch:
    """Reads the state before the first fetch, after each notification, and every few seconds."""

    def __init__(
        self,
        read_state: Callable[[], Awaitable[ControlState]],
        apply: Callable[[ControlState], None],
        *,
        interval: float = LOOK_INTERVAL,
    ) -> None:
        """`apply` gets the state whenever something is asked for, and once when that is over."""
        self._read_state = read_state
        self._apply = apply
        self._interval = interval
        self._state = NOTHING_ASKED
        self._changed = asyncio.Event()
        self._is_failing = False
        self.is_on = True
        """False if this role may not read the tables."""

    def changed(self) -> None:
        """Look now: a notification says that the state has changed."""
        self._changed.set()

    async def look(self) -> None:
        """Read the state and apply it; call it before the first fetch."""
        if not self.is_on:
            return
        try:
            state = await self._read_state()
        except Exception as error:
            if sqlstate_of(error) not in REFUSED:
                raise
            self.is_on = False
            logger.warning(
                "this worker cannot see pauses and cancelled jobs (%s); to obey them, run workers as the "
                "owner of the schema",
                message_of(error),
            )
            return
        last, self._state = self._state, state
        if state is not NOTHING_ASKED or last is not NOTHING_ASKED:
            self._apply(state)

    async def run(self) -> None:
        """Look until cancelled. A failure is logged once until it works again."""
        while self.is_on:
            wait = self._interval
            if self._state.changes_in is not None:
                wait = min(wait, max(0.0, self._state.changes_in))
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            self._changed.clear()
            try:
                await self.look()
            except Exception as error:
                if not self._is_failing:
                    logger.warning("pauses and cancelled jobs cannot be read: %s; retrying", explained(error))
                self._is_failing = True
            else:
                self._is_failing = False
