"""OperatorCommands: what one pool does when an operator asks it to stop, to be quiet, or where a job is."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Mapping
from typing import Any

from ...db.connection import Connection
from ...db.errors import explained, sqlstate_of
from ...queries.control import ControlState, read_control_state
from ...queries.requests import UNAVAILABLE, StackAnswer, answer_stack
from ...tasks.call import label_of
from ...tasks.helpers import current_helpers
from ...tasks.stacks import TaskStack, coroutine_stack, thread_stack
from ...tasks.threads import TaskThreads
from ..background import BackgroundTasks
from ..context import PoolContext
from ..lanes import Lanes
from ..run.slots import Slot
from ..session.session import Sessions

logger = logging.getLogger("graphile_worker.worker")


class OperatorCommands:
    """Obeys the requests of a state. `PauseWatch` keeps a quiet pool from fetching."""

    def __init__(
        self,
        context: PoolContext,
        sessions: Sessions,
        lanes: Lanes,
        threads: TaskThreads,
        background: BackgroundTasks,
    ) -> None:
        self._context = context
        self._sessions = sessions
        self._lanes = lanes
        self._threads = threads
        self._background = background
        self._answered: set[int] = set()
        self._has_table = True
        self.is_quiet = False

    async def read(self) -> ControlState:
        """What operators ask for; without requests if this role may not read them."""
        schema, pool_id, run = self._context.schema, self._context.pool_id, self._sessions.run

        def look(connection: Connection) -> Awaitable[ControlState]:
            return read_control_state(connection, schema, pool_id, has_requests=self._has_table)

        try:
            return await run(look)
        except Exception as error:
            if not self._has_table or sqlstate_of(error) not in UNAVAILABLE:
                raise
        self._has_table = False
        state = await run(look)
        logger.info("this worker cannot be asked to stop, to be quiet or for the stacks of its jobs")
        return state

    def apply(self, state: ControlState) -> None:
        """Call it whenever the state was read, also for the same requests."""
        if state.stop is not None:
            self._context.owner.begin_shutdown(f"asked to stop: {state.stop}")
        if state.is_quiet != self.is_quiet:
            self.is_quiet = state.is_quiet
            logger.info(
                "quiet: an operator asked this worker to fetch no more jobs"
                if state.is_quiet
                else "no longer quiet: this worker fetches jobs again"
            )
        self._answer_stacks(state.stacks)

    def _answer_stacks(self, wanted: Mapping[int, int]) -> None:
        for request_id, job_id in wanted.items():
            if request_id not in self._answered:
                self._background.start(self._send(request_id, job_id), "stack of a job")
        self._answered = set(wanted)

    async def _send(self, request_id: int, job_id: int) -> None:
        schema = self._context.schema
        try:
            answer = await self.stack_of(job_id)
            await self._sessions.run(lambda connection: answer_stack(connection, schema, request_id, answer))
        except Exception as error:  # the one who asked is told that there was no answer
            logger.debug("the stack of job %d could not be sent: %s", job_id, explained(error))

    async def stack_of(self, job_id: int) -> StackAnswer:
        """Where a job is now."""
        slot = self._lanes.slot_of(job_id)
        if slot is None or slot.job is None or slot.task is None:
            return StackAnswer(kind="not running")
        name, seconds = slot.job.task_identifier, time.monotonic() - slot.started
        call = _call_of(slot)
        found = await _stack_elsewhere(call) if call is not None and call.place is not None else None
        if found is None:
            thread = self._threads.thread_of(label_of(name, job_id))
            if thread is not None:
                found = TaskStack("thread", thread_stack(thread))
            else:
                found = TaskStack("coroutine", coroutine_stack(slot.task))
        return StackAnswer(
            kind=found.kind,
            stack=found.text,
            running_for=seconds,
            task_identifier=name,
            place=None if call is None else call.place,
        )


def _call_of(slot: Slot) -> Any:
    """The `TaskCall` of a job that an executor runs; None for others."""
    helpers = None if slot.context is None else slot.context.get(current_helpers)
    return None if helpers is None else helpers._call


async def _stack_elsewhere(call: Any) -> TaskStack | None:
    """The stack of a job that an executor runs; None if the executor cannot know it."""
    if call.ask_stack is None:
        return None
    found: TaskStack | None = await call.ask_stack()
    return found or TaskStack("thread", "  (no answer: perhaps C code keeps the interpreter to itself)")
