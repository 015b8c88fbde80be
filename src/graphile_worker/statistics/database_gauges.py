"""Reads the gauges about the database, at a cost that does not depend on the number of jobs.

ready = await read_ready_gauges(connection, schema)      # 200 pages of the jobs table; every few seconds
table = await read_table_gauges(connection, schema)      # as many, and the queues; once a minute will do
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from ..db.connection import Connection
from ..queries.inspection import count_by_task
from ..schema_name import SchemaName
from ..sql import load
from .backlog import read_backlog
from .gauges import READY_CAP, Gauge, gauge
from .queue_depths import read_queue_depths

COUNTED_PAGES = 100
"""Of the jobs table that are read to count jobs by task; of a larger table, as many are a sample."""
MAX_TASKS = 200
"""Tasks with a label of their own."""


async def read_ready_gauges(connection: Connection, schema: SchemaName) -> list[Gauge]:
    """What changes quickly: ready jobs, the oldest of them, and worker pools."""
    backlog = await read_backlog(connection, schema)
    found = ready_gauges(backlog.ready, backlog.oldest_wait)
    if await connection.fetchval(load("statistics/has_workers", schema), schema.name):
        pools = await count_pools(connection, schema)
        found += pool_gauges(pools["alive"], pools["unreachable"])
    return found


async def read_table_gauges(
    connection: Connection, schema: SchemaName, *, queues: Collection[str] = (), max_tasks: int = MAX_TASKS
) -> list[Gauge]:
    """What changes slowly: jobs by task and state, waiting jobs by queue, the size of the table.

    `queues`: names of queues with a label of their own. Without names, all queues if they are few.
    """
    counts, is_estimate = await count_by_task(connection, schema, COUNTED_PAGES)
    depths = await read_queue_depths(connection, schema, queues)
    (row,) = await connection.fetch(load("statistics/table_state", schema), f"{schema.quoted}._private_jobs")
    by_task = [
        ({"task": task, "state": state}, float(count))
        for task, states in bounded(counts, max_tasks).items()
        for state, count in states.items()
    ]
    by_queue = [({"queue": name}, float(depth)) for name, depth in depths.items()]
    return [
        Gauge("jobs", by_task),
        gauge("jobs_is_estimate", float(is_estimate)),
        *([Gauge("queue_jobs", by_queue)] if by_queue else []),
        gauge("jobs_table_bytes", row["bytes"]),
        gauge("jobs_dead_rows", row["dead_rows"]),
    ]


def ready_gauges(ready: int, oldest_wait: float) -> list[Gauge]:
    """How many jobs are ready, and since when the oldest is."""
    return [
        gauge("oldest_ready_job_age_seconds", oldest_wait),
        gauge("ready_jobs", min(ready, READY_CAP)),
        gauge("ready_jobs_is_capped", float(ready >= READY_CAP)),
    ]


def pool_gauges(alive: int, lost: int) -> list[Gauge]:
    """How many worker pools there are."""
    return [Gauge("workers", [({"state": "alive"}, float(alive)), ({"state": "lost"}, float(lost))])]


async def count_pools(connection: Connection, schema: SchemaName) -> dict[str, int]:
    """Pools: `alive`, `unreachable`; and of those that are alive `slots`, `held` and `running` jobs."""
    (row,) = await connection.fetch(load("statistics/count_workers", schema), schema.name)
    return dict(row.items())


def bounded(counts: Mapping[str, Mapping[str, int]], most: int) -> dict[str, Counter[str]]:
    """The tasks with the most jobs; the rest is `other`."""
    found: dict[str, Counter[str]] = {}
    for task in sorted(counts, key=lambda task: -sum(counts[task].values())):
        name = task if len(found) < most else "other"
        found.setdefault(name, Counter()).update(counts[task])
    return found
