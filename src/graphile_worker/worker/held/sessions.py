"""BatchSessions: the sessions of held batches, borrowed from the tasks' share of the connections.

They are opened when jobs are short and many, and closed when none were held for a while. A caller that must
wait for a connection gets one of theirs.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Protocol

from ...database.connections.bound import is_gone
from ...database.connections.connection import Connection
from ...database.statements.held_batches import warm_up
from ...values.flags import NO_RULES, FlagRules
from ...values.job import Job
from ...values.outcome import Completed, Finished
from ...values.schema_name import SchemaName
from ..session import Session, Sessions
from .series import HeldSeries

SESSIONS = 3  # one batch runs, one is fetched, one is committed
FEWEST_SESSIONS = 2
WAITS = 3  # for a free session, until another one is opened: a short drain does without
PATIENCE = 0.002  # seconds to wait for a free session before slots that are idle count
IDLE = 60.0  # seconds without a batch after which the sessions are closed

logger = logging.getLogger("graphile_worker.worker")


class SpareConnections(Protocol):
    """Connections of the pool that tasks do not need at the moment: see `ConnectionBudget`."""

    def take(self) -> bool: ...
    def put_back(self) -> None: ...
    @property
    def wanted(self) -> int: ...
    def watch(self, on_wanted: Callable[[], None]) -> None: ...


class HeldBatch:
    """Jobs that run while their rows are locked by a transaction of this pool."""

    __slots__ = (
        "batch_session",
        "connection",
        "ending",
        "finished",
        "has_records",
        "ids",
        "is_being_kept",
        "is_committing",
        "is_kept",
        "is_locking",
        "is_writing",
        "jobs",
        "left",
        "limits",
        "released",
        "retries",
        "series",
        "tasks",
        "timer",
    )

    def __init__(self, batch_session: BatchSession, tasks: Mapping[int, str], connection: Connection) -> None:
        self.batch_session = batch_session
        """The session that has the transaction."""
        self.tasks = tasks
        """Those of the fetch, by id."""
        self.connection = connection
        self.limits: Sequence[str] | None = None
        """Those that count its jobs; None if they have no limits, of whatever kind."""
        self.series: HeldSeries | None = None
        """The series of its jobs, if they are of named queues."""
        self.jobs: Sequence[Job] = ()
        self.ids: set[int] = set()
        """Of all jobs that were not released, until the batch has ended."""
        self.left = 0
        """How many of the jobs have neither ended nor been released."""
        self.finished: list[Finished] = []
        """Outcomes that are not part of the end yet."""
        self.timer: asyncio.TimerHandle | None = None
        self.is_committing = False
        """Whether the commit was sent."""
        self.retries: Mapping[int, datetime] = {}
        """When jobs run again whose failure its end has written, by id."""
        self.is_writing = False
        """Whether a statement was sent that changes rows."""
        self.has_records = False
        """Whether its end keeps jobs in the history."""
        self.is_kept = False
        """Whether another thread locks its jobs, or has locked them; see `recovery.held_batches`."""
        self.is_being_kept = False
        """Whether that thread is not done."""
        self.is_locking = False
        """Whether all jobs are being locked, before any has started."""
        self.ending: asyncio.Task[None] | None = None
        self.released: set[int] = set()
        """Ids of jobs that were released after the end had begun, which may lock them all the same."""

    @property
    def is_open(self) -> bool:
        """Whether the transaction is open, as far as is known."""
        return not is_gone(self.connection) and self.connection.is_in_transaction()

    def abandon(self) -> None:
        """Make sure that the transaction does not stay open: the next batch would become a part of it."""
        if self.is_open:
            self.connection.terminate()

    def take_finished(self) -> tuple[list[Finished], list[Finished]]:
        """The outcomes so far: those that need nothing but a delete, and the others."""
        finished, self.finished = self.finished, []
        completed = [each for each in finished if type(each.outcome) is Completed]
        if len(completed) == len(finished):
            return completed, []
        return completed, [each for each in finished if type(each.outcome) is not Completed]


class BatchSession:
    """A session for held batches, one at a time."""

    __slots__ = ("batch", "is_fetching", "is_reserved", "is_warm", "session")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.batch: HeldBatch | None = None
        self.is_fetching = False
        self.is_warm = False
        """Whether it has a connection."""
        self.is_reserved = False
        """Whether one is reserved for it, also while it is opened and closed."""

    @property
    def is_free(self) -> bool:
        """Whether a batch can begin."""
        return self.is_warm and self.batch is None and not self.is_fetching

    @property
    def is_busy(self) -> bool:
        """Whether it has a batch, or is about to."""
        return self.batch is not None or self.is_fetching


class BatchSessions:
    """The sessions of one pool."""

    def __init__(
        self,
        sessions: Sessions,
        spare: SpareConnections,
        schema: SchemaName,
        *,
        on_short: Callable[[], None],
        flags: FlagRules = NO_RULES,
    ) -> None:
        """`on_short`: called when there are not enough connections."""
        self._spare = spare
        self._schema = schema
        self._flags = flags
        self._on_short = on_short
        self.all = [BatchSession(sessions.open(hold=True)) for _ in range(SESSIONS)]
        self.batches: set[HeldBatch] = set()
        """Those that have not ended."""
        self._warming: asyncio.Task[None] | None = None
        self._cooling: dict[BatchSession, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._waits = 0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._used_at = 0.0  # monotonic
        self.is_closing = False
        """Whether no more batches begin."""
        self.is_abandoned = False
        """Whether those that are open are not ended."""
        spare.watch(self._make_room)

    def are_ready(self) -> bool:
        """Whether enough are warm; starts to warm them up otherwise."""
        if self._warm_count >= FEWEST_SESSIONS:
            return True
        self._waits = 0
        self._start_to_warm_up(FEWEST_SESSIONS)
        return False

    @property
    def are_busy(self) -> bool:
        """Whether one has a batch, or is about to."""
        return any(each.is_busy for each in self.all)

    def open_all(self) -> None:
        """Warm up every session: there is much to do, and nothing has begun."""
        self._start_to_warm_up(SESSIONS)

    @property
    def _warm_count(self) -> int:
        return sum(each.is_warm for each in self.all)

    def _start_to_warm_up(self, count: int) -> None:
        if not self.is_closing and (self._warming is None or self._warming.done()):
            self._warming = asyncio.get_running_loop().create_task(
                self._warm_up(count), name="graphile-worker sessions of held batches"
            )

    @property
    def are_warming(self) -> bool:
        """Whether too few are warm, and are being warmed up."""
        return self._warming is not None and not self._warming.done() and self._warm_count < FEWEST_SESSIONS

    def free(self) -> BatchSession | None:
        """A session without a batch; None if there is none, or they are being closed."""
        if self.is_closing:
            return None
        return next((each for each in self.all if each.is_free), None)

    async def until_free(self, is_over: Callable[[], bool]) -> None:
        """Wait until a batch can begin, or none can; `is_over` is called from time to time and can end it."""
        while self._warm_count and self.free() is None and not self.is_closing:
            if await self.change(within=PATIENCE):
                self._waits += 1
                if self._waits % WAITS == 0 and self._warm_count < SESSIONS:
                    self._start_to_warm_up(SESSIONS)
            elif is_over():
                return

    async def change(self, *, within: float | None = None) -> bool:
        """Wait until a session has changed; False if none has within this many seconds."""
        self._changed.clear()
        try:
            async with asyncio.timeout(within):
                return await self._changed.wait()
        except TimeoutError:
            return False

    def changed(self) -> None:
        """Call it when a batch has ended, or could not begin."""
        self._make_room()
        self._changed.set()

    def begun(self, batch: HeldBatch) -> None:
        """A batch has begun in its session."""
        batch.batch_session.batch = batch
        self.batches.add(batch)

    def over(self, batch: HeldBatch) -> None:
        """A batch has ended, or is lost: its session is free."""
        batch.batch_session.batch = None
        self.batches.discard(batch)
        self.changed()

    def used(self) -> None:
        """Call it for each batch: sessions that are not used are closed after a while."""
        self._used_at = time.monotonic()
        if self._idle_timer is None:
            self._idle_timer = asyncio.get_running_loop().call_later(IDLE, self._check_idle)

    def lost_if_gone(self, batch_session: BatchSession) -> None:
        """Call it after a failure: the connection may have been lost."""
        if batch_session.is_warm and not batch_session.session.is_connected:
            batch_session.is_warm = False
            self._put_back(batch_session)

    async def close(self) -> None:
        """Begin no more batches; the pool closes the sessions."""
        self._begin_to_close()
        if self._warming is not None:
            await asyncio.wait((self._warming,))

    def abandon(self) -> None:
        """As `close`, without waiting: whatever keeps a session from being closed is cancelled."""
        self.is_abandoned = True
        for task in self._cooling.values():
            task.cancel()
        self._begin_to_close()

    def _begin_to_close(self) -> None:
        self.is_closing = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._warming is not None:
            self._warming.cancel()
        self._changed.set()

    async def _warm_up(self, count: int) -> None:
        """Connect sessions until there are `count`, or as many as tasks can spare."""
        cold = [each for each in self.all if not each.is_reserved][: count - self._warm_count]
        batch_sessions = [each for each in cold if self._reserve(each)]
        try:
            if self._warm_count + len(batch_sessions) < FEWEST_SESSIONS:
                self._on_short()
                return
            async with asyncio.TaskGroup() as group:  # not `gather`, which does not wait for what it cancels
                for batch_session in batch_sessions:
                    group.create_task(self._open(batch_session))
            self.used()  # those that are never used are closed too
        finally:  # also if this is cancelled before it has connected
            for batch_session in batch_sessions:
                if not batch_session.is_warm and batch_session not in self._cooling:
                    self._put_back(batch_session)

    def _reserve(self, batch_session: BatchSession) -> bool:
        batch_session.is_reserved = self._spare.take()
        return batch_session.is_reserved

    def _put_back(self, batch_session: BatchSession) -> None:
        if batch_session.is_reserved:
            batch_session.is_reserved = False
            self._spare.put_back()

    async def _open(self, batch_session: BatchSession) -> None:
        try:
            await batch_session.session.run(lambda connection: warm_up(connection, self._schema, self._flags))
            batch_session.is_warm = True
        except Exception as error:
            self._on_short()
            logger.debug("no session for held batches: %r", error)
            await batch_session.session.close()
            self._put_back(batch_session)
        finally:
            self.changed()

    def _make_room(self) -> None:
        """Leave connections to callers that wait. Sessions that are not free do so as soon as they are."""
        missing = self._spare.wanted - len(self._cooling)
        if missing > 0 and not self.is_abandoned:
            free = [each for each in self.all if each.is_free]  # also while the worker stops
            if free:
                self._on_short()
                self._start_to_cool(free[:missing])

    def _check_idle(self) -> None:
        self._idle_timer = None
        left = self._used_at + IDLE - time.monotonic()
        if left <= 0:
            self._start_to_cool([each for each in self.all if each.is_free])
            left = IDLE
        if self._warm_count:
            self._idle_timer = asyncio.get_running_loop().call_later(left, self._check_idle)

    def _start_to_cool(self, batch_sessions: Sequence[BatchSession]) -> None:
        for batch_session in batch_sessions:
            batch_session.is_warm = False  # before anything waits: a batch must not begin now
            self._cooling[batch_session] = task = asyncio.get_running_loop().create_task(
                batch_session.session.close(), name="graphile-worker session that is not needed"
            )
            task.add_done_callback(partial(self._cooled, batch_session))

    def _cooled(self, batch_session: BatchSession, _: asyncio.Task[None]) -> None:
        """Also if it was cancelled before its first step."""
        del self._cooling[batch_session]
        self._put_back(batch_session)
