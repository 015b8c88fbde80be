"""ControlWatch: learns what operators ask of a running pool: which tasks are paused, which jobs to cancel.

The state is in tables. A notification on the channel `worker:py` only says that it has changed. The watch
looks every few seconds where LISTEN does not work, as behind a pooler, and while something is asked for.
Otherwise it looks seldom: the listener notices a dead connection, and a new one leads to a look.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from ... import sqlstates
from ...db.errors import explained, sqlstate_of
from ...error_text import message_of
from ...queries.control import NOTHING_ASKED, ControlState

LOOK_INTERVAL = 5.0  # seconds
IDLE_INTERVAL = 30.0  # seconds, while nothing is asked for and LISTEN works
REFUSED = (sqlstates.INSUFFICIENT_PRIVILEGE, sqlstates.UNDEFINED_TABLE)

logger = logging.getLogger("graphile_worker.worker")


class ControlWatch:
    """Reads the state before the first fetch, after each notification, and at intervals."""

    def __init__(
        self,
        read_state: Callable[[], Awaitable[ControlState]],
        apply: Callable[[ControlState], None],
        *,
        is_listening: Callable[[], bool],
    ) -> None:
        """`apply` gets the state whenever something is asked for, and once when that is over.

        `is_listening`: whether notifications arrive.
        """
        self._read_state = read_state
        self._apply = apply
        self._is_listening = is_listening
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
            with suppress(TimeoutError):
                async with asyncio.timeout(self._wait()):
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

    def _wait(self) -> float:
        """Seconds until the next look."""
        if self._state is NOTHING_ASKED and self._is_listening() and not self._is_failing:
            return IDLE_INTERVAL
        changes_in = self._state.changes_in
        return LOOK_INTERVAL if changes_in is None else min(LOOK_INTERVAL, max(0.0, changes_in))
