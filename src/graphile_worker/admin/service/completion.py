"""Completion for the filter box: names of filters, states, tasks and queues, a bounded number."""

from __future__ import annotations

from typing import Literal

import msgspec

from ...database.connections.connection import Connection
from ...database.sql import load
from ...database.statements.job_filter import JOB_STATES
from ...values.schema_name import SchemaName
from ..database import Database
from ..filters import Filter

MOST = 50

NameKind = Literal["task", "queue"]
HINTS = {
    "state": "ready, scheduled, running or failed",
    "task": "the task identifier",
    "queue": "the named queue",
    "key": "the job key; abc* for its beginning",
    "flag": "a flag",
    "worker": "the pool that has locked the job",
    "priority": "5, <0 or 1..5",
    "attempts": ">3",
    "created": ">1h: in the last hour",
    "run": "<now: due",
    "failed": ">1d: failed in the last day",
    "error": "a part of the error",
    "id": "12 or 1000-2000",
    "payload.": "a member: payload.user_id:42",
}


class Suggestion(msgspec.Struct, frozen=True):
    """What can stand in place of the word that is being typed."""

    value: str
    hint: str = ""


async def complete(database: Database, word: str) -> list[Suggestion]:
    """Suggestions for the last word of a filter."""
    name, colon, text = word.partition(":")
    if not colon:
        return await _names_and_tasks(database, word)
    if name == "state":
        return [Suggestion(f"state:{state}") for state in JOB_STATES if state.startswith(text.lower())]
    if name in ("task", "queue"):
        kind: NameKind = "task" if name == "task" else "queue"
        async with database.read() as connection:
            found = await names(connection, database.schema, kind, text.strip('"'))
        return [Suggestion(Filter(((name, value),)).text) for value in found]
    return []


async def _names_and_tasks(database: Database, word: str) -> list[Suggestion]:
    own = [
        Suggestion(name if name.endswith(".") else f"{name}:", hint)
        for name, hint in HINTS.items()
        if name.startswith(word.lower())
    ]
    async with database.read() as connection:
        found = await names(connection, database.schema, "task", word, most=10)
    return own + [Suggestion(Filter((("task", value),)).text, "task") for value in found]


async def names(
    connection: Connection, schema: SchemaName, kind: NameKind, text: str = "", most: int = MOST
) -> list[str]:
    """Names of tasks that contain the text, or of queues that begin with it."""
    rows = await connection.fetch(load(f"admin/complete_{kind}s", schema), text, most)
    return [row["name"] for row in rows]
