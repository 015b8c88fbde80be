"""Session: a connection that the engine keeps for itself, made anew when it is lost.

Fetching and writing never wait for a connection that a task has borrowed, and run with settings made for
their statements. Only one statement is in flight at a time. What is locked without our knowledge, because a
connection broke before the answer came, is given back before the next statement (see `holdings`). A statement
that gets no answer for long is given up with its connection: a network may swallow everything without a word.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import TypeVar

from .. import sqlstates
from ..db.array_types import teach_arrays
from ..db.borrowed import give_back, is_gone, throw_away
from ..db.connection import Connection, Pool
from ..db.errors import sqlstate_of
from ..db.retry import BROKEN_CONNECTION, UNREACHABLE, delays_for
from ..job import Job
from ..recovery.lease import Lease
from ..recovery.reclaim import end_lost_sessions, reclaim_jobs
from ..schema_name import SchemaName
from ..sql import load
from .deadline import Deadline
from .holdings import Holdings

ANSWER_WITHIN = (
    30.0  # seconds for the answer to a statement; twice as long after each time that it took longer
)
LONGEST_WAIT = 600.0
CLOSE_WITHIN = 2.0  # seconds for a connection to be reset before it is thrown away
END_WITHIN = 5.0  # seconds for the server to end a session that was given up
END_PAUSE = 0.05

T = TypeVar("T")
Statement = Callable[[Connection], Awaitable[T]]


class Sessions:
    """The sessions of one pool, and the holdings and the lease that they share."""

    def __init__(
        self, pool: Pool, schema: SchemaName, pool_id: str, lease: Lease, *, prepared_statements: bool
    ) -> None:
        self._pool = pool
        self._schema = schema
        self._pool_id = pool_id
        self._prepared_statements = prepared_statements
        self._all: list[Session] = []
        self._given_up: set[int] = set()  # process ids of sessions that the server may still believe in
        self.holdings = Holdings()
        self.lease = lease

    def open(self) -> Session:
        """One more session; it connects when it is first used."""
        session = Session(self._pool, self._schema, self, prepared_statements=self._prepared_statements)
        self._all.append(session)
        return session

    async def reclaim(self) -> None:
        """If it is in doubt what this pool has locked: give back what it does not know of."""
        if not self.holdings.in_doubt:
            return
        async with AsyncExitStack() as stack:
            for session in self._all:  # nothing may be on its way while we compare
                await stack.enter_async_context(session.lock)
            if self.holdings.in_doubt:
                await self._all[0].run_locked(self._reclaim)
                self.holdings.in_doubt = False

    async def _reclaim(self, connection: Connection) -> None:
        await self._end_given_up(connection)
        known = [*self.holdings.jobs, *self.holdings.given_up]
        await reclaim_jobs(connection, self._schema, self._pool_id, known)

    async def _end_given_up(self, connection: Connection) -> None:
        """Nothing that was sent on a connection which we left may be committed from now on."""
        pids = set(self._given_up)
        async with asyncio.timeout(END_WITHIN):
            left = pids
            while left:
                try:
                    left = set(await end_lost_sessions(connection, self._schema, sorted(left)))
                except Exception as error:
                    if sqlstate_of(error) != sqlstates.INSUFFICIENT_PRIVILEGE:
                        raise
                    break
                if left:
                    await asyncio.sleep(END_PAUSE)
        self._given_up -= pids

    def give_up(self, connection: Connection) -> None:
        """The connection is left although the server may not know that."""
        self._given_up.add(connection.get_server_pid())

    async def let_go(self) -> None:
        """Nothing is run any more: give back whatever this pool still holds, known or not."""
        if self.holdings.jobs:
            self.holdings.jobs.clear()
            self.holdings.in_doubt = True
        await self.reclaim()

    async def close(self) -> None:
        """Give all connections back."""
        await asyncio.gather(*(session.close() for session in self._all), return_exceptions=True)


class Session:
    """Runs statements one at a time on a connection of the pool that it does not give back until closed."""

    def __init__(self, pool: Pool, schema: SchemaName, group: Sessions, *, prepared_statements: bool) -> None:
        self._pool = pool
        self._schema = schema
        self._group = group
        # Behind a transaction pooler settings would stick to somebody else's session.
        self._is_tuned = prepared_statements
        self._connection: Connection | None = None
        self._patience = ANSWER_WITHIN
        self._deadline = Deadline()
        self.lock = asyncio.Lock()

    @property
    def holdings(self) -> Holdings:
        """Which jobs the pool holds."""
        return self._group.holdings

    @property
    def lease(self) -> Lease:
        """Whether the pool may touch its jobs."""
        return self._group.lease

    async def run(self, statement: Statement[T]) -> T:
        """Run one statement; nothing is retried. After a lost connection the next call opens a new one."""
        await self._group.reclaim()
        async with self.lock:
            return await self.run_locked(statement)

    async def take(self, statement: Statement[Sequence[Job]]) -> Sequence[Job]:
        """Run one statement that locks jobs for this pool, and enter them in the holdings.

        Not while others may have taken the pool for dead; if that came about meanwhile, nobody knows whether
        these jobs are still ours, and those that are go back.
        """
        lease, holdings = self._group.lease, self._group.holdings
        while True:
            # Nearly always there is nothing to wait for, and an announced job does not wait for calls either.
            if not lease.is_open:
                await lease.passed()
            if holdings.in_doubt:
                await self._group.reclaim()
            async with self.lock:
                if not lease.is_open:
                    continue
                epoch = lease.epoch
                jobs = await self.run_locked(statement)
                if lease.epoch != epoch:
                    holdings.in_doubt = True
                    return []
                holdings.enter(jobs)
                return jobs

    async def run_locked(self, statement: Statement[T]) -> T:
        """The same for who holds `lock`."""
        connection = self._connection
        if connection is None or is_gone(connection):
            async with asyncio.timeout(self._patience):
                connection = await self._open()
        try:
            self._deadline.begin(self._patience)
            try:
                result = await statement(connection)
            finally:
                self._deadline.end()
            self._patience = ANSWER_WITHIN
            return result
        except BaseException as error:
            was_missed = self._deadline.was_missed(error)
            if was_missed:  # perhaps it is only slow
                self._patience = min(self._patience * 2, LONGEST_WAIT)
            # A cancelled statement leaves the connection in the middle of an answer.
            if is_gone(connection) or isinstance(error, asyncio.CancelledError) or _is_lost(error):
                self._group.holdings.in_doubt = True
                await self._drop(left=not is_gone(connection))
            if was_missed:
                raise TimeoutError from error
            raise

    async def close(self) -> None:
        """Give the connection back as it came."""
        async with self.lock:
            self._deadline.stop()
            connection, self._connection = self._connection, None
            if connection is None:
                return
            if self._is_tuned and not is_gone(connection):
                try:
                    await connection.reset(timeout=CLOSE_WITHIN)
                except BaseException as error:
                    await throw_away(self._pool, connection)
                    if not isinstance(error, Exception):  # all tasks are cancelled, those that stop us too
                        raise
                    return
            await give_back(self._pool, connection)

    async def _open(self) -> Connection:
        if self._connection is not None and is_gone(self._connection):
            await self._drop()
        if self._connection is None:
            connection: Connection = await self._pool.acquire()
            teach_arrays(connection)  # the pool may be the caller's
            try:
                if self._is_tuned:
                    await connection.fetch(load("session/tune_session", self._schema))
            except BaseException:
                await throw_away(self._pool, connection)
                raise
            self._connection = connection
        return self._connection

    async def _drop(self, *, left: bool = False) -> None:
        """Do without the connection; `left` if the server may believe that it is still used."""
        connection, self._connection = self._connection, None
        if connection is not None:
            if left and self._is_tuned:  # behind a pooler we do not know which session it was
                self._group.give_up(connection)
            await throw_away(self._pool, connection)


def _is_lost(error: BaseException) -> bool:
    """Whether another connection may fare better, be it to another server after a failover."""
    return delays_for(error) in (BROKEN_CONNECTION, UNREACHABLE)
