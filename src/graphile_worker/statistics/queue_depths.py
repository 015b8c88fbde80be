"""How many jobs wait in named queues, at a cost that does not depend on the number of jobs or queues.

Up to 1,000 jobs of a queue are counted through an index; more are estimated from a sample of the jobs table.
In a schema without the index, which only Node or Rust has used, all are estimated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from ..db.array_types import teach_arrays
from ..db.connection import Connection
from ..queries.inspection import jobs_table_pages
from ..schema_name import SchemaName
from ..spec import home_name
from ..sql import load

MAX_QUEUES = 50
"""Queues that are counted without being named: names of queues have no bound."""
MAX_ROWS = 200
"""Rows of queues, with the tracks of wide ones."""
COUNTED = 1_000
"""Jobs of a queue that are counted."""
SAMPLED_PAGES = 100


async def read_queue_depths(
    connection: Connection, schema: SchemaName, names: Collection[str] = ()
) -> dict[str, int]:
    """Waiting jobs by queue, a wide queue with its tracks.

    `names`: which queues; those that do not exist have no jobs. Without names, all queues, or none of them if
    there are more than `MAX_QUEUES`.
    """
    teach_arrays(connection)
    (has,) = await connection.fetch(load("statistics/queue_support", schema), schema.name)
    if names:
        queues = await _named(connection, schema, names, has["has_tracks"])
    else:
        queues = await _few(connection, schema)
    found = Counter(dict.fromkeys([*names, *queues.values()], 0))
    for id, jobs in (await _depths(connection, schema, list(queues), has["has_index"])).items():
        found[queues[id]] += jobs
    return dict(found)


async def _named(
    connection: Connection, schema: SchemaName, names: Collection[str], has_tracks: bool
) -> dict[int, str]:
    """Names of queues by the ids of these and of their tracks."""
    rows = await connection.fetch(load("names/queue_ids", schema), list(names))
    found = {row["id"]: row["queue_name"] for row in rows}
    if found and has_tracks:
        tracks = await connection.fetch(load("statistics/tracks_of_queues", schema), list(found))
        found |= {row["id"]: found[row["home_id"]] for row in tracks[:MAX_ROWS]}
    return found


async def _few(connection: Connection, schema: SchemaName) -> dict[int, str]:
    """All queues, if there are few."""
    rows = await connection.fetch(load("statistics/first_queues", schema), MAX_ROWS + 1)
    found = {row["id"]: home_name(row["queue_name"]) for row in rows}
    is_few = len(rows) <= MAX_ROWS and len(set(found.values())) <= MAX_QUEUES
    return found if is_few else {}


async def _depths(
    connection: Connection, schema: SchemaName, ids: list[int], has_index: bool
) -> Mapping[int, int]:
    if not ids:
        return {}
    found: dict[int, int] = dict.fromkeys(ids, COUNTED)
    if has_index:
        rows = await connection.fetch(load("statistics/queue_depths", schema), ids, COUNTED + 1)
        found = {row["id"]: row["jobs"] for row in rows}
    long = [id for id in ids if found[id] > COUNTED] if has_index else ids
    if long:
        estimates = await _sampled(connection, schema, long)
        found |= {id: max(estimates.get(id, 0), COUNTED if has_index else 0) for id in long}
    return found


async def _sampled(connection: Connection, schema: SchemaName, ids: list[int]) -> dict[int, int]:
    """Estimates; exact if the table is small."""
    pages = await jobs_table_pages(connection, schema)
    percentage = min(100.0, 100.0 * SAMPLED_PAGES / max(pages, 1))
    rows = await connection.fetch(load("statistics/sample_queue_depths", schema), ids, percentage)
    return {row["id"]: round(row["jobs"] * 100 / percentage) for row in rows}
