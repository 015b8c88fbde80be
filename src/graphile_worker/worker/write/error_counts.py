"""ErrorCounts: counts the errors of one pool by fingerprint, and stores the counts every few seconds.

As with statistics, nothing counts twice: what may have been stored before the connection broke is dropped.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from ... import sqlstates
from ...db.connection import Connection
from ...db.errors import explained, is_surely_undone, sqlstate_of
from ...error_text import message_of
from ...history.error_groups import MAX_MESSAGE, CountedErrors, write_error_groups
from ...history.fingerprint import place_in
from ...hooks.redaction import Redactor, redacted_text
from ...outcome import Failed, Finished
from ...schema_name import SchemaName

STORE_AFTER = 5.0  # seconds after the first error
MAX_GROUPS = 1_000  # that are counted at the same time; beyond that errors have no pattern
STORE_WITHIN = 5.0
UNAVAILABLE = (
    sqlstates.UNDEFINED_TABLE,
    sqlstates.INVALID_SCHEMA_NAME,
    sqlstates.INSUFFICIENT_PRIVILEGE,
)

logger = logging.getLogger("graphile_worker.worker")

Run = Callable[[Callable[[Connection], Awaitable[None]]], Awaitable[None]]


class ErrorCounts:
    """Adds to the groups of errors in the database."""

    def __init__(
        self,
        run: Run,
        schema: SchemaName,
        *,
        version: str | None = None,
        redactors: Sequence[Redactor] = (),
    ) -> None:
        """`run` runs a statement."""
        self._redactors = redactors
        self._run = run
        self._schema = schema
        self._version = version
        self._counted: dict[str, CountedErrors] = {}
        self._latest: dict[str, tuple[str, BaseException]] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_storing = False
        self._is_failing = False
        self._is_on = True

    def add(
        self, finished: Finished, outcome: Failed, fingerprint: str, error_type: str, *, is_final: bool
    ) -> None:
        """Count an error that was written; `is_final`: the job failed permanently with it."""
        now, job = time.monotonic(), finished.job
        known = self._counted.get(fingerprint)
        if known is None:
            if len(self._counted) >= MAX_GROUPS or not self._is_on:
                return
            self._counted[fingerprint] = CountedErrors(
                task_id=job.task_id,
                error_type=error_type,
                message="",
                place=place_in(outcome.traceback),
                first_at=now,
                last_at=now,
                errors=1,
                permanent=int(is_final),
                job_id=job.id,
            )
        else:
            known.errors += 1
            known.permanent += is_final
            known.last_at = now
            known.job_id = job.id
        self._latest[fingerprint] = job.task_identifier, outcome.error
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(
                self._store_later(), name="graphile-worker error groups"
            )

    def _message(self, task_identifier: str, error: BaseException) -> str:
        message = message_of(error)
        return redacted_text(self._redactors, task_identifier, message) if self._redactors else message

    async def close(self) -> None:
        """Store what is left, if the database answers soon."""
        if (task := self._task) is not None:
            if self._is_storing:
                await asyncio.wait((task,), timeout=STORE_WITHIN)
            task.cancel()
            await asyncio.wait((task,))
        with suppress(Exception):
            async with asyncio.timeout(STORE_WITHIN):
                await self._store()

    async def _store_later(self) -> None:
        try:
            while self._counted:
                await asyncio.sleep(STORE_AFTER)
                self._is_storing = True
                try:
                    await self._store()
                except Exception as error:
                    self._failed(error)
                else:
                    self._is_failing = False
                finally:
                    self._is_storing = False
        finally:
            self._task = None

    def _failed(self, error: Exception) -> None:
        if sqlstate_of(error) in UNAVAILABLE:
            self._is_on = False
            self._counted.clear()
            self._latest.clear()
            logger.warning("errors are not counted: %s; jobs run as usual", explained(error))
            return
        level = logging.DEBUG if self._is_failing else logging.WARNING
        self._is_failing = True
        logger.log(level, "groups of errors cannot be stored: %s", explained(error))

    async def _store(self) -> None:
        counted, self._counted = self._counted, {}
        latest, self._latest = self._latest, {}
        if not counted:
            return
        for fingerprint, (task_identifier, error) in latest.items():
            counted[fingerprint].message = self._message(task_identifier, error)[:MAX_MESSAGE]
        now = time.monotonic()
        try:
            await self._run(
                lambda connection: write_error_groups(connection, self._schema, counted, now, self._version)
            )
        except Exception as error:
            if is_surely_undone(error):
                self._put_back(counted)
            raise

    def _put_back(self, unwritten: dict[str, CountedErrors]) -> None:
        """Add what was not stored to what was counted in the meantime."""
        for fingerprint, earlier in unwritten.items():
            later = self._counted.get(fingerprint)
            if later is None:
                self._counted[fingerprint] = earlier
            else:
                later.errors += earlier.errors
                later.permanent += earlier.permanent
                later.first_at = earlier.first_at
