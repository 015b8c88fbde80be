"""Failed sign-ins go to the log and to the audit, beside the request: it does not wait for the database."""

from __future__ import annotations

import asyncio
import logging

from ..errors.text import message_of
from ..history.audit import Actor
from .audit import record_alone
from .auth import FailedSignIn
from .database import Database

MAX_PENDING = 20
"""Rows that wait to be written. More failures than that are only logged."""

logger = logging.getLogger("graphile_worker.admin")


class SignInAudit:
    """Records failed sign-ins in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._pending: set[asyncio.Task[None]] = set()

    def record(self, failure: FailedSignIn) -> None:
        """Log the failure, and write it to the audit soon."""
        logger.warning("sign-in refused: user %r, %s, from %s", failure.user, failure.how, failure.address)
        if len(self._pending) >= MAX_PENDING:
            return
        task = asyncio.create_task(self._write(failure), name="audit of a sign-in")
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def aclose(self) -> None:
        """Wait for what is being written."""
        await asyncio.gather(*self._pending)

    async def _write(self, failure: FailedSignIn) -> None:
        actor = Actor(failure.user, failure.how, failure.address)
        try:
            await record_alone(self._database, actor, "sign_in_refused", target=failure.user)
        except Exception as error:
            logger.warning("the refused sign-in is not in the audit: %s", message_of(error))
