"""What operators ask of running workers, and how workers read it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ..db.connection import Connection
from ..schema_name import SchemaName
from ..sql import load

EVERY_TASK = ""
"""The name under which every task is paused."""


class ControlState(msgspec.Struct, frozen=True):
    """What operators ask of one pool."""

    paused: frozenset[str] = frozenset()
    """Identifiers of paused tasks; `EVERY_TASK` among them if all are."""
    changes_in: float | None = None
    """Seconds until the first pause ends; None if none has an end."""
    cancelled: Mapping[int, str | None] = msgspec.field(default_factory=dict[int, str | None])
    """Ids of jobs of this pool that were cancelled, and the reasons."""


async def read_control_state(connection: Connection, schema: SchemaName, pool_id: str) -> ControlState:
    """What operators ask of this pool now."""
    rows = await connection.fetch(load("control/look", schema), pool_id)
    if not rows:
        return NOTHING_ASKED
    return ControlState(
        paused=frozenset(row["task"] for row in rows if row["task"] is not None),
        changes_in=min((row["seconds"] for row in rows if row["seconds"] is not None), default=None),
        cancelled={row["job_id"]: row["reason"] for row in rows if row["job_id"] is not None},
    )


NOTHING_ASKED = ControlState()
