"""ControlWatch: learns what operators ask of a running pool: which tasks are paused, which jobs to cancel.

The state is in tables. A notification on the channel `worker:py` only says that it has changed. The watch
looks every few seconds where LISTEN does not work, as behind a pooler, and while something is asked for.
Otherwise it looks seldom: the listener notices a dead connection, and a new one leads to a look.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from ...database.connections import sqlstates
from ...database.connections.errors import explained, sqlstate_of
from ...database.statements.control import NOTHING_ASKED, ControlState
from ...errors.text import message_of
from ..context import BackgroundTasks, PoolContext
from ..fetch.wide_queues import WideQueues
from .commands import Cancellations, OperatorCommands, PauseWatch

LOOK_INTERVAL = 5.0  # seconds
IDLE_INTERVAL = 30.0  # seconds, while nothing is asked for and LISTEN works
LOOK_AGAIN_AFTER = 0.2  # seconds
REFUSED = (sqlstates.INSUFFICIENT_PRIVILEGE, sqlstates.UNDEFINED_TABLE)

logger = logging.getLogger("graphile_worker.worker")


class ControlWatch:
    """Reads the state before the first fetch, after each notification, and at intervals."""

    def __init__(
        self,
        context: PoolContext,
        background: BackgroundTasks,
        pauses: PauseWatch,
        cancellations: Cancellations,
        commands: OperatorCommands,
        wide_queues: WideQueues,
    ) -> None:
        self._owner = context.owner
        self._background = background
        self._pauses = pauses
        self._cancellations = cancellations
        self._commands = commands
        self._wide_queues = wide_queues
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

    async def _read_state(self) -> ControlState:
        state = await self._commands.read()
        if state.has_ended_pauses and await self._pauses.end_due_pauses():
            state = await self._commands.read()
        return state

    def _apply(self, state: ControlState) -> None:
        """Do what operators ask for; called while they ask for something, and once when that is over."""
        if self._cancellations.end(state.cancelled):
            asyncio.get_running_loop().call_later(LOOK_AGAIN_AFTER, self.changed)
        if state.has_leftover_cancels:
            self._background.start(self._cancellations.end_leftovers(), "cancelled jobs")
        self._pauses.apply(state)
        self._commands.apply(state)
        self._wide_queues.apply(state.has_wide_queues)

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
        if self._state is NOTHING_ASKED and self._owner.is_listening and not self._is_failing:
            return IDLE_INTERVAL
        changes_in = self._state.changes_in
        return LOOK_INTERVAL if changes_in is None else min(LOOK_INTERVAL, max(0.0, changes_in))
