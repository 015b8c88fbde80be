"""The audit of the dashboard: every change, refused sign-ins, sign-outs, and revealed payloads.

    await record(call, connection, "pause_queue", target=name, details={"until": until})

`connection` is the one of `database.write()`, so that the change and its row are one transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from ...database.connections.connection import Connection
from ...database.sql import load
from ...errors.text import message_of
from ...history import audit
from ...history.audit import Actor
from ..database import Database
from ..web.call import Call

logger = logging.getLogger("graphile_worker.admin")

SIGN_OUT = "sign_out"
MOST_SIGN_OUTS = 10_000
MAX_PENDING = 20
"""Rows that wait to be written. More failures than that are only logged."""


def actor_of(call: Call) -> Actor:
    """Who makes this request."""
    return Actor(call.identity.name, call.identity.how, call.address)


async def record(
    call: Call,
    connection: Connection,
    action: str,
    *,
    target: str = "",
    jobs: int = 0,
    job_ids: Sequence[int] = (),
    details: Mapping[str, Any] | None = None,
) -> int | None:
    """Add a row about this request; returns its id, or None where the table is missing.

    `action` is a word such as `retry`, `pause_queue` or `reveal_payload`; `target` says what it was about, in
    words; `details` are the values that were given: empty ones are left out. No secrets.
    """
    given = {name: value for name, value in (details or {}).items() if value not in (None, "")}
    return await audit.record(
        connection, call.database.schema, actor_of(call), action,
        target=target, jobs=jobs, job_ids=job_ids, details=given,
    )  # fmt: skip


def because(call: Call, reason: str, otherwise: str = "by") -> str:
    """Who did it, and why, as it is stored with a pause or a request."""
    name = call.identity.name
    return (f"{name}: {reason}" if reason else f"{otherwise} {name}")[:1000]


async def record_alone(
    database: Database,
    actor: Actor,
    action: str,
    *,
    target: str = "",
    details: Mapping[str, Any] | None = None,
) -> None:
    """Add a row in a transaction of its own, for what changes nothing else: a refused sign-in, a reveal.

    Where there is no table, or the dashboard is read-only, it goes to the log.
    """
    recorded = None
    if not database.is_read_only:
        async with database.write() as connection:
            recorded = await audit.record(
                connection, database.schema, actor, action, target=target, details=details
            )
    if recorded is None:
        logger.info("%s by %r from %s: %r", action, actor.name, actor.origin, target)


async def record_sign_out(database: Database, actor: Actor, session_id: str) -> None:
    """Record that a session has ended, for the time after a restart."""
    try:
        details = {"session": session_id}
        await record_alone(database, actor, SIGN_OUT, target=actor.name, details=details)
    except Exception as error:
        logger.warning("the sign-out is not in the audit: %s", message_of(error))


async def read_sign_outs(database: Database, since: datetime) -> list[str]:
    """The ids of sessions that were signed out, as far as the audit can be read."""
    async with database.read() as connection:
        if not (await audit.audit_tables(connection, database.schema)).may_read:
            return []
        statement = load("admin/list_audit", database.schema)
        rows = await connection.fetch(statement, None, SIGN_OUT, since, None, None, MOST_SIGN_OUTS)
    return [str(msgspec.json.decode(row["details"]).get("session")) for row in rows]


class SignInAudit:
    """Records failed sign-ins in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._pending: set[asyncio.Task[None]] = set()

    def record(self, actor: Actor) -> None:
        """Log the failure, and write it to the audit soon."""
        logger.warning("sign-in refused: user %r, %s, from %s", actor.name, actor.how, actor.origin)
        if len(self._pending) >= MAX_PENDING:
            return
        task = asyncio.create_task(self._write(actor), name="audit of a sign-in")
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def aclose(self) -> None:
        """Wait for what is being written."""
        await asyncio.gather(*self._pending)

    async def _write(self, actor: Actor) -> None:
        try:
            await record_alone(self._database, actor, "sign_in_refused", target=actor.name)
        except Exception as error:
            logger.warning("the refused sign-in is not in the audit: %s", message_of(error))
