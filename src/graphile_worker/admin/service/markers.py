"""Markers: what happened at a moment, for charts: deploys, pauses, actions, restarts of the server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from ...database.connections.connection import Connection, Row
from ...database.sql import load
from ...database.statements.control import list_deploys
from ...values.job import Pause
from ...values.schema_name import SchemaName
from ..models.series import Marker

AUDIT = "_private_py_audit"
DEPLOYS = "_private_py_deploys"
MOST_ACTIONS = 40
SAME = timedelta(seconds=5)
SILENT = frozenset({"sign_in_refused", "reveal_payload"})
"""Actions that change nothing, so that they explain nothing."""


async def read_markers(
    connection: Connection,
    schema: SchemaName,
    since: datetime,
    *,
    tables: frozenset[str],
    pauses: Sequence[Pause] = (),
) -> list[Marker]:
    """Everything since then, in order; `shown_to` leaves out what a person may not see."""
    found = await read_deploys(connection, schema, since, tables=tables)
    recorded: list[Marker] = []
    if AUDIT in tables:
        recorded = await _actions(connection, schema, since)
        found += recorded
    found += _pauses(pauses, since, recorded)
    started: datetime = await connection.fetchval(load("admin/server_start", schema))
    if started >= since:
        found.append(Marker(started, "restart", "the server was restarted"))
    return sorted(found, key=lambda marker: marker.at)


def shown_to(markers: Iterable[Marker], *, may_audit: bool) -> list[Marker]:
    """Without what people did, which is in the audit, for those who may not read that."""
    return [each for each in markers if may_audit or each.kind != "action"]


async def read_deploys(
    connection: Connection, schema: SchemaName, since: datetime, *, tables: frozenset[str]
) -> list[Marker]:
    """Deploys of the application: the first start of a worker with another version."""
    if DEPLOYS not in tables:
        return []
    found = await list_deploys(connection, schema, since)
    return [Marker(each.started_at, "deploy", f"{each.version} was deployed") for each in reversed(found)]


async def _actions(connection: Connection, schema: SchemaName, since: datetime) -> list[Marker]:
    rows = await connection.fetch(load("admin/actions_since", schema), since, MOST_ACTIONS)
    return [
        Marker(row["at"], "pause" if row["action"].startswith("pause") else "action", _words(row))
        for row in rows
        if row["action"] not in SILENT
    ]


def _words(row: Row) -> str:
    action = row["action"].replace("_", " ")
    target = f" {row['target']}" if row["target"] else ""
    return f"{action}{target} by {row['who']}"


def _pauses(pauses: Sequence[Pause], since: datetime, recorded: Sequence[Marker]) -> list[Marker]:
    """Pauses in the period that are not in the audit, because they were made in code."""
    return [
        Marker(pause.paused_at, "pause", f"{pause.what} paused")
        for pause in pauses
        if pause.paused_at is not None
        and pause.paused_at >= since
        and not any(each.kind == "pause" and abs(each.at - pause.paused_at) < SAME for each in recorded)
    ]
