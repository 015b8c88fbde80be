"""Which tasks the running workers have, as far as the database knows.

Python pools register their tasks. Pools of other runtimes do not, nor do Python workers without recovery.
"""

from __future__ import annotations

import msgspec

from ..db.connection import Connection
from ..schema_name import SchemaName
from .worker_rows import WorkerList, WorkerSummary, has_rust_workers, list_workers


class RunningTasks(msgspec.Struct, frozen=True):
    """The Python pools that are alive, and their tasks."""

    pools: list[WorkerSummary]
    tasks: frozenset[str]
    has_others: bool
    """Whether workers of other runtimes may be running."""

    @property
    def no_worker(self) -> str:
        """Those that do not have a task which is not in `tasks`, for people."""
        return "no running Python worker" if self.has_others else "no running worker"


async def running_tasks(
    connection: Connection, schema: SchemaName, workers: WorkerList | None = None
) -> RunningTasks:
    """The tasks of running workers; `workers` if they are already listed."""
    if workers is None:
        workers = await list_workers(connection, schema)
    has_others = (
        not workers.is_complete
        or any(worker.is_alive is None for worker in workers)
        or await has_rust_workers(connection, schema)
    )
    pools = [worker for worker in workers if worker.is_alive]
    tasks = frozenset(task for pool in pools for task in pool.tasks or ())
    return RunningTasks(pools, tasks, has_others)
