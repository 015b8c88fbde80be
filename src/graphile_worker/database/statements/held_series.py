"""Statements of series: the jobs of named queues in held batches.

`take_queues` locks queues in the ordinary way, in a transaction of its own. In the transaction of the batch,
`get_series` locks the rows of their next jobs, and `end_series` deletes those that have completed and unlocks
the queues. See docs/design/0038-queues-in-held-batches.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from ...values.flags import NO_RULES, FlagRules
from ...values.job import Job
from ...values.schema_name import SchemaName
from ..connections.connection import Connection, Row
from ..sql import load
from .fetch import flag_terms, load_routed, task_ids
from .held_batches import RowsKeptError

READ_MORE = 40  # jobs, beside two for each queue and those of queues that are known to be busy


class TakenQueues(msgspec.Struct, frozen=True):
    """Queues that `take_queues` has locked."""

    ids: list[int]
    """In the order of their first jobs."""
    priorities: list[int]
    """Those of their first jobs."""
    at: datetime
    """When they were locked."""
    are_all: bool
    """Whether every other ready job is in a queue that is busy."""


async def take_queues(
    connection: Connection,
    schema: SchemaName,
    *,
    pool_id: str,
    tasks: Mapping[int, str],
    limit: int,
    recovered: str,
    busy: int = 0,
    flags: FlagRules = NO_RULES,
    now: datetime | None = None,
) -> TakenQueues | None:
    """Lock up to `limit` queues whose jobs are next; None if there are none.

    `recovered`: the last error of jobs that no series has. `busy`: how many ready jobs this pool has in
    queues that it has locked; the statement reads past them.
    """
    rows = await connection.fetch(
        load_routed("held/take_queues", schema, flags),
        *(pool_id, task_ids(tasks), limit, flag_terms(flags), now, 2 * limit + READ_MORE + busy, recovered),
    )
    if not rows:
        return None
    ids, priorities = [row[0] for row in rows], [row[1] for row in rows]
    return TakenQueues(ids, priorities, rows[0][2], rows[0][3])


async def get_series(
    connection: Connection,
    schema: SchemaName,
    taken: TakenQueues,
    *,
    tasks: Mapping[int, str],
    limit: int,
    longest: int,
    recovered: str,
    flags: FlagRules = NO_RULES,
    now: datetime | None = None,
) -> Sequence[Row]:
    """Lock the rows of up to `limit` jobs of these queues, and `longest` of each; queue by queue."""
    terms = limit, task_ids(tasks), now, flag_terms(flags), taken.ids, taken.priorities, longest, recovered
    return await connection.fetch(load_routed("held/get_series", schema, flags), *terms)


async def end_series(
    connection: Connection,
    schema: SchemaName,
    pool_id: str,
    *,
    completed: Sequence[int],
    queues: Sequence[int],
) -> None:
    """Delete completed jobs and unlock queues. Raises RowsKeptError."""
    statement = load("held/end_series", schema)
    if await connection.execute(statement, pool_id, completed, queues) != f"DELETE {len(completed)}":
        raise RowsKeptError


async def settle_series(
    connection: Connection, schema: SchemaName, pool_id: str, locked_at: datetime, jobs: Sequence[Job]
) -> dict[int, bool | None]:
    """Delete completed jobs of a lost batch whose queues were locked at this time and still are.

    Whether each was deleted; None if it is taken. Without those that are gone.
    """
    rows = await connection.fetch(
        load("held/settle_series", schema),
        *(pool_id, locked_at, [job.id for job in jobs], [job.attempts for job in jobs]),
    )
    return {row[0]: row[1] for row in rows}
