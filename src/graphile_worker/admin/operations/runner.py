"""OperationRunner: carries out the operations of one database, also those that an earlier process began.

All state is in the database. A process that carries out an operation has a lease on its row, which each step
renews; when the process ends, another one takes over after the lease. Without an operation under way the
runner sends no statement.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Callable
from typing import Any

from ...database.connections.errors import explained
from ...database.connections.retry import is_conflict, is_retryable
from ...database.sql import load
from ...history.audit import audit_tables, purge_audit
from ..database import Database, is_outage
from .queries import LEASE
from .steps import step

logger = logging.getLogger("graphile_worker.admin")

RETRY = 2.0
"""Seconds until a step is repeated that failed because of the connection or of a lock."""
MOST_RETRIES = 5
"""Of a step that the database refuses; a lost connection is waited for without end."""
RENEW = 5.0
"""Seconds between two renewals of the lease while an operation waits."""


class OperationRunner:
    """The operations that this process carries out for one database."""

    def __init__(self, database: Database) -> None:
        self.name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self.on_change: Callable[[int], Any] = lambda operation_id: None
        """Called after each step, for live updates."""
        self._database = database
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._woken: dict[int, asyncio.Event] = {}
        self._later: asyncio.Task[None] | None = None
        self._is_closed = False

    def start(self, operation_id: int) -> None:
        """Go on with an operation that this process has the lease on."""
        if self._is_closed or operation_id in self._tasks:
            return
        self._woken[operation_id] = asyncio.Event()
        task = asyncio.create_task(self._run(operation_id), name=f"operation {operation_id}")
        self._tasks[operation_id] = task
        task.add_done_callback(lambda _: self._forget(operation_id))

    def wake(self, operation_id: int) -> None:
        """Make the next step at once: a person asked for a stop."""
        if operation_id in self._woken:
            self._woken[operation_id].set()

    async def adopt(self) -> None:
        """Take over operations whose process is gone, and look again when the leases of others end."""
        database = self._database
        if database.is_read_only or self._is_closed:
            return
        async with database.read() as connection:
            tables = await audit_tables(connection, database.schema)
            if not (tables.may_read and tables.may_write):
                return
            rows = await connection.fetch(load("admin/active_operations", database.schema))
        others = False
        for row in rows:
            if row["id"] in self._tasks:
                continue
            async with database.write() as connection:
                claim = load("admin/claim_operation", database.schema)
                mine = await connection.fetchval(claim, row["id"], self.name, LEASE)
            if mine is None:
                others = True
            else:
                self.start(row["id"])
        if others:
            self.adopt_later(LEASE)

    def adopt_later(self, seconds: float = 0.0) -> None:
        """The same in the background."""
        if self._is_closed or self._database.is_read_only:
            return
        if self._later is not None:
            if seconds:
                return  # a sooner look schedules the next one
            self._later.cancel()
        self._later = asyncio.create_task(self._adopt_after(seconds), name="adopt operations")

    async def _adopt_after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._later = None
        await self.adopt_if_possible()

    async def adopt_if_possible(self) -> None:
        """The same without errors: the schema may be missing, or the database may not answer."""
        try:
            await self.adopt()
            if not self._database.is_read_only:  # where no Python worker does it
                async with self._database.write() as connection:
                    await purge_audit(connection, self._database.schema)
        except Exception as error:
            logger.debug("operations cannot be taken over: %s", explained(error))

    async def aclose(self) -> None:
        """Stop after the current steps; another dashboard, or the next start, goes on."""
        self._is_closed = True
        tasks = list(self._tasks.values())
        waiting = [] if self._later is None else [self._later]
        for task in (*tasks, *waiting):
            task.cancel()
        await asyncio.gather(*tasks, *waiting, return_exceptions=True)
        if not tasks:
            return
        try:
            async with self._database.write() as connection:
                await connection.execute(load("admin/release_operations", self._database.schema), self.name)
        except Exception as error:
            logger.debug("leases end by themselves: %s", explained(error))

    def _forget(self, operation_id: int) -> None:
        self._tasks.pop(operation_id, None)
        self._woken.pop(operation_id, None)

    async def _run(self, operation_id: int) -> None:
        failures = 0
        while not self._is_closed:
            try:
                made = await step(self._database, operation_id, self.name)
                failures = 0
            except Exception as error:
                failures += 0 if is_outage(error) else 1
                if failures > (MOST_RETRIES if is_retryable(error) or is_conflict(error) else 0):
                    logger.exception("operation %s has failed", operation_id)
                    await self._fail(operation_id, error)
                    return
                logger.debug("operation %s: %s; retrying", operation_id, explained(error))
                await self._sleep(operation_id, RETRY, renew=False)
                continue
            self.on_change(operation_id)
            if made.is_over:
                return
            await self._sleep(operation_id, made.wait)

    async def _sleep(self, operation_id: int, seconds: float, *, renew: bool = True) -> None:
        """Wait, keeping the lease, until the time is over or a person asks for a stop."""
        woken = self._woken[operation_id]
        while seconds > 0 and not woken.is_set():
            part = min(seconds, RENEW)
            seconds -= part
            try:
                await asyncio.wait_for(woken.wait(), part)
            except TimeoutError:
                if renew and seconds > 0:
                    await self._renew(operation_id)
        woken.clear()

    async def _renew(self, operation_id: int) -> None:
        try:
            async with self._database.write() as connection:
                lock = load("admin/lock_operation", self._database.schema)
                await connection.fetchval(lock, operation_id, self.name, LEASE)
        except Exception as error:
            logger.debug("the lease of operation %s is not renewed: %s", operation_id, explained(error))

    async def _fail(self, operation_id: int, error: Exception) -> None:
        try:
            async with self._database.write() as connection:
                end = load("admin/fail_operation", self._database.schema)
                await connection.execute(end, operation_id, self.name, explained(error)[:1000])
        except Exception as again:
            logger.warning("operation %s cannot be ended: %s", operation_id, explained(again))
        self.on_change(operation_id)
