"""Heartbeat: shows the other workers that this one lives, until it is told to stop.

It holds an advisory lock on a connection of its own. A process that is killed loses it as soon as the server
sees the connection close; one that is merely busy keeps it. Behind a pooler a lock would not stay with us, so
there the time of the last heartbeat counts. Either way each heartbeat that arrives prolongs the lease by
which the pool knows that its jobs are its own. It may run on any event loop, best on one in a thread of its
own, which a task that blocks the worker's loop does not block.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

from .. import sqlstates
from ..clock import uptime
from ..db.borrowed import is_gone
from ..db.connection import Connection
from ..db.errors import explained, sqlstate_of
from ..db.retry import Backoff, Delays
from ..schema_name import SchemaName
from .connections import OpensConnection
from .rust_workers import RustWorkers
from .worker_rows import (
    LivenessKind,
    WorkerCard,
    beat_worker,
    deregister_worker,
    end_old_session,
    is_direct,
    lock_worker,
    register_worker,
    tune_liveness,
    unlock_worker,
)

RECONNECT = Delays(0.1, 1.3)  # seconds, spread by a half: at most two
LOCK_PAUSE = 0.1  # seconds between two tries for the lock
OLD_SESSION_AFTER = 5  # tries until a session of ours that the server still believes in is ended
GIVE_UP_AFTER = 50  # tries
UNAVAILABLE = (
    sqlstates.UNDEFINED_TABLE,
    sqlstates.INVALID_SCHEMA_NAME,
    sqlstates.INSUFFICIENT_PRIVILEGE,
)

logger = logging.getLogger("graphile_worker.recovery")


class Heartbeat:
    """The signs of life of one pool."""

    def __init__(
        self,
        card: WorkerCard,
        schema: SchemaName,
        open_connection: OpensConnection,
        beside_rust: RustWorkers,
        *,
        started_at: datetime,
        on_sign: Callable[[float, bool], bool],
        on_unavailable: Callable[[], None],
    ) -> None:
        """`on_sign` hears when a heartbeat that arrived was sent, and whether the pool was taken for dead
        before; it says whether anybody is left to live for. Both are called in the thread of `run`.
        """
        self._card = card
        self._schema = schema
        self._open_connection = open_connection
        self._beside_rust = beside_rust
        self._started_at = started_at
        self._on_sign = on_sign
        self._on_unavailable = on_unavailable
        self._patience = card.grace / 3
        self._backoff = Backoff(RECONNECT)
        self._may_lock = True
        self._is_troubled = False
        self._stop_asked = threading.Event()
        self._deregister = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()

    def ask_to_stop(self, *, deregister: bool) -> None:
        """End `run`, from any thread; with `deregister` the pool is known to have left nothing behind."""
        self._deregister = deregister
        self._stop_asked.set()
        if self._loop is not None:
            with suppress(RuntimeError):  # that loop has ended already
                self._loop.call_soon_threadsafe(self._wake.set)

    async def run(self) -> None:
        """Show that the pool lives, on one connection after the other."""
        self._loop = asyncio.get_running_loop()
        while not self._stop_asked.is_set():
            try:
                async with self._open_connection() as connection:
                    await self._live(connection)
            except NobodyLeftError:
                return
            except Exception as error:
                if self._stop_asked.is_set():
                    return
                self._failed(error)
                await self._wait(self._backoff.next_delay())

    # -- one connection ------------------------------------------------------------------------------------

    async def _live(self, connection: Connection) -> None:
        kind, pid = await self._prepare(connection)
        connection.add_termination_listener(self._ended)
        try:
            while not self._stop_asked.is_set() and not is_gone(connection):
                await self._beat(connection, kind, pid)
                await self._beside_rust.beat_if_due(connection)
                await self._wait(self._card.heartbeat_interval)
            if is_gone(connection):
                raise ConnectionError("the connection was closed by the server")
        finally:
            with suppress(Exception):
                connection.remove_termination_listener(self._ended)
        await self._say_goodbye(connection, kind)

    async def _prepare(self, connection: Connection) -> tuple[LivenessKind, int | None]:
        """Take the lock, if it would stay with us; how our life shows from now on."""
        schema, timeout = self._schema, self._patience
        if self._may_lock and not await is_direct(connection, schema, timeout=timeout):
            self._may_lock = False
            logger.info(
                "there is a pooler in front of the database: this worker shows by heartbeats that it lives"
            )
        if not self._may_lock:
            return "heartbeat", None
        await tune_liveness(connection, schema, timeout=timeout)
        await self._take_lock(connection)
        return "lock", connection.get_server_pid()

    async def _take_lock(self, connection: Connection) -> None:
        schema, pool_id, timeout = self._schema, self._card.id, self._patience
        for attempt in range(GIVE_UP_AFTER):
            if await lock_worker(connection, schema, pool_id, timeout=timeout):
                return
            # Somebody who sweeps holds it for moments. If it takes longer, we ourselves do: the server has
            # not noticed that the connection before this one is lost.
            if attempt >= OLD_SESSION_AFTER:
                await end_old_session(connection, schema, pool_id, timeout=timeout)
            await self._wait(LOCK_PAUSE)
        raise TimeoutError("the lock that shows that this worker lives is held by somebody else")

    async def _beat(self, connection: Connection, kind: LivenessKind, pid: int | None) -> None:
        card, timeout = self._card, self._patience
        sent_at = uptime()
        seen = await beat_worker(
            connection, self._schema, card.id, liveness=kind, backend_pid=pid, timeout=timeout
        )
        was_swept = seen is None
        if was_swept:
            await register_worker(
                connection,
                self._schema,
                card,
                liveness=kind,
                backend_pid=pid,
                started_at=self._started_at,
                timeout=timeout,
            )
        elif kind == "lock" and seen != pid:
            self._may_lock = False
            raise ConnectionError("the connection leads to another session of the server every time")
        self._backoff.reset()
        if self._is_troubled:
            self._is_troubled = False
            logger.info("the others can see again that this worker lives")
        if not self._on_sign(sent_at, was_swept):
            raise NobodyLeftError

    async def _say_goodbye(self, connection: Connection, kind: LivenessKind) -> None:
        schema, pool_id = self._schema, self._card.id
        if self._deregister:
            await deregister_worker(connection, schema, pool_id, timeout=self._patience)
            await self._beside_rust.leave(connection)
        if kind == "lock":
            await unlock_worker(connection, schema, pool_id, timeout=self._patience)

    # -- trouble and waiting -------------------------------------------------------------------------------

    def _failed(self, error: Exception) -> None:
        is_unavailable = sqlstate_of(error) in UNAVAILABLE
        if is_unavailable:
            self._on_unavailable()
        if not self._is_troubled:  # once for all the tries until it works again
            self._is_troubled = True
            logger.warning(
                "this worker cannot show that it lives: %s; %s",
                explained(error),
                "it goes on without" if is_unavailable else "trying again",
            )

    def _ended(self, *_: object) -> None:
        self._wake.set()

    async def _wait(self, seconds: float) -> None:
        """So long, or until the connection ends or we are told to stop."""
        self._wake.clear()
        if self._stop_asked.is_set():
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()


class NobodyLeftError(Exception):
    """The event loop of the pool has ended without a word; its jobs are for others now."""
