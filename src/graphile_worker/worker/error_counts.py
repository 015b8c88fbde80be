"""ErrorCounts: counts the errors of one pool by fingerprint, and stores the counts every few seconds."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from ..db.connection import Connection
from ..error_text import message_of
from ..history.error_groups import MAX_MESSAGE, CountedErrors, write_error_groups
from ..history.fingerprint import place_in
from ..hooks.redaction import Redactor, redacted_text
from ..outcome import Failed, Finished
from ..schema_name import SchemaName

STORE_AFTER = 5.0  # seconds after the first error
MAX_GROUPS = 1_000  # that are counted at the same time; beyond that errors have no pattern
STORE_WITHIN = 5.0

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
        self._task: asyncio.Task[None] | None = None

    def add(
        self, finished: Finished, outcome: Failed, fingerprint: str, error_type: str, *, is_final: bool
    ) -> None:
        """Count an error that was written; `is_final`: the job failed permanently with it."""
        now, job = time.monotonic(), finished.job
        known = self._counted.get(fingerprint)
        if known is None:
            if len(self._counted) >= MAX_GROUPS:
                return
            self._counted[fingerprint] = CountedErrors(
                task_id=job.task_id,
                error_type=error_type,
                message=self._message(job.task_identifier, outcome)[:MAX_MESSAGE],
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
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(
                self._store_later(), name="graphile-worker error groups"
            )

    def _message(self, task_identifier: str, outcome: Failed) -> str:
        message = message_of(outcome.error)
        return redacted_text(self._redactors, task_identifier, message) if self._redactors else message

    async def close(self) -> None:
        """Store what is left, if the database answers soon."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        with suppress(Exception):
            async with asyncio.timeout(STORE_WITHIN):
                await self._store()

    async def _store_later(self) -> None:
        await asyncio.sleep(STORE_AFTER)
        try:
            await self._store()
        except Exception as error:
            logger.warning("groups of errors cannot be stored: %s", message_of(error))
        finally:
            self._task = None

    async def _store(self) -> None:
        counted, self._counted = self._counted, {}
        if not counted:
            return
        now = time.monotonic()
        await self._run(
            lambda connection: write_error_groups(connection, self._schema, counted, now, self._version)
        )
