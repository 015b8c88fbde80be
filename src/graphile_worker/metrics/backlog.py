"""What waits in the jobs table, and in named queues, at a cost that does not depend on the number of jobs.

A small table is read in full, a large one in part. Only if that finds few ready jobs, or none, they are
counted through the index. Beside a long backlog that would be expensive: the index begins with the entries
of all jobs that ran since the last vacuum.

Up to 1,000 jobs of a queue are counted through an index; more are estimated from a sample of the jobs table.
In a schema without the index, which only Node or Rust has used, all are estimated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

import msgspec

from ..database.connections.connection import Connection, Row
from ..database.connections.encoding import teach_arrays
from ..database.sql import load
from ..database.statements.inspection import jobs_table_pages
from ..values.schema_name import SchemaName
from ..values.spec import home_name

STATES = ("ready", "scheduled", "failed")
COUNTERS = ("added", "deleted", "updated", "live")
SCANNED_PAGES = 200  # of the jobs table
MANY = 5_000  # ready jobs that need not be counted one by one
COUNTED = 1_000  # jobs of one state, or of one queue, that are; more are estimated


class Backlog(msgspec.Struct, frozen=True):
    """The jobs table at one moment."""

    added: int
    """Counters of the server for the table, since it began to count."""
    deleted: int
    updated: int
    live: int
    """All jobs, as the server's statistics say."""
    ready: int
    scheduled: int
    failed: int
    """Permanently failed jobs."""
    estimated: frozenset[str]
    """Which of the three counts are estimates."""
    oldest_wait: float
    """Seconds since the oldest ready job could run; 0 if none is ready."""
    locked: int
    """Jobs that workers have locked; an estimate unless the table is small."""
    is_scanned: bool
    """Whether the whole table was read, so that `locked` is exact."""

    @property
    def is_estimate(self) -> bool:
        return bool(self.estimated)

    @property
    def counters(self) -> tuple[int, ...]:
        """They change whenever a job does."""
        return self.added, self.deleted, self.updated, self.live


async def read_backlog(connection: Connection, schema: SchemaName) -> Backlog:
    """What is waiting now."""
    scanned = found = await _read(connection, schema, "scan_jobs", SCANNED_PAGES)
    percentage = scanned["percentage"]
    counts = {state: round(scanned[state] * 100 / percentage) for state in STATES}
    estimated: tuple[str, ...] = STATES if percentage < 100 else ()
    if estimated and counts["ready"] <= MANY:
        estimates = counts
        found = await _read(connection, schema, "look_at_jobs", COUNTED + 1)
        counts = {state: found[state] for state in STATES}
        estimated = tuple(state for state in STATES if counts[state] > COUNTED)
        counts |= {state: max(counts[state], estimates[state]) for state in estimated}
    return Backlog(
        **{counter: found[counter] for counter in COUNTERS},
        **counts,
        estimated=frozenset(estimated),
        oldest_wait=found["oldest_wait"],
        locked=round(scanned["locked"] * 100 / percentage),
        is_scanned=percentage >= 100,
    )


async def _read(connection: Connection, schema: SchemaName, statement: str, limit: int) -> Row:
    table = f"{schema.quoted}._private_jobs"
    (row,) = await connection.fetch(load(f"statistics/{statement}", schema), table, limit)
    return row


MAX_QUEUES = 50
"""Queues that are counted without being named: names of queues have no bound."""
MAX_ROWS = 200
"""Rows of queues, with the tracks of wide ones."""
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
