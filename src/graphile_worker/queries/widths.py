"""Wide queues: how many jobs of a named queue may run at once.

A wide queue owns further rows of the shared table of queues, its tracks; see `sql/own_objects/0015_tracks`.
"""

from __future__ import annotations

from collections.abc import Mapping

from .. import sqlstates
from ..db.array_types import teach_arrays
from ..db.connection import Connection
from ..db.errors import sqlstate_of
from ..errors import InvalidArgumentError, PermissionDeniedError, SchemaMissingError
from ..schema_name import SchemaName
from ..spec import check_queue_name, check_width
from ..sql import load
from .lock_waits import yielding_locks

MAX_NAME_LENGTH = 120  # leaves room for the number of a track


async def set_queue_width(
    connection: Connection, schema: SchemaName, queue_name: str, width: int | None
) -> None:
    """Set the width of a queue by hand; None leaves it to the tasks again."""
    check_queue_name(queue_name)
    if width is not None:
        check_width("width", width)
    if len(queue_name) > MAX_NAME_LENGTH:
        raise InvalidArgumentError(
            "queue_name", f"has {len(queue_name)} characters; a wide queue may have {MAX_NAME_LENGTH}"
        )

    async def change() -> None:
        queue_id = await connection.fetchval(load("widths/set_width", schema), queue_name, width)
        await set_tracks(connection, schema, {queue_id: 1 if width is None else width})

    try:
        await yielding_locks(connection, schema, change)
    except Exception as error:
        state = sqlstate_of(error)
        if state in (sqlstates.UNDEFINED_TABLE, sqlstates.UNDEFINED_FUNCTION):
            raise SchemaMissingError(
                "the tables for wide queues are missing; to create them, run as the owner of the schema: "
                "graphile-worker migrate",
                sqlstate=state,
            ) from error
        if state == sqlstates.INSUFFICIENT_PRIVILEGE:
            raise PermissionDeniedError(
                f"this role may not set widths ({error}); connect as the owner of the schema", sqlstate=state
            ) from error
        raise


async def set_tracks(connection: Connection, schema: SchemaName, widths: Mapping[int, int | None]) -> int:
    """Give queues the tracks for their widths, None to leave one as it is; returns how many have changed."""
    teach_arrays(connection)
    changed: int = await connection.fetchval(
        load("widths/set_tracks", schema), list(widths), list(widths.values())
    )
    return changed


async def track_names(connection: Connection, schema: SchemaName, queue_name: str) -> list[str]:
    """The names of the tracks of a queue; empty if it is not wide, or without the tables."""
    rows = await connection.fetch(load("widths/list_tracks", schema), queue_name)
    return [row[0] for row in rows]
