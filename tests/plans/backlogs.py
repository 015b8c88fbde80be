"""Tables full of jobs that a worker cannot run now, and that must not slow down the fetch of others."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

SIZE = int(os.environ.get("TEST_PLAN_ROWS", "50000"))
"""Jobs in a backlog; set TEST_PLAN_ROWS=1000000 for a thorough run."""
QUEUES = SIZE // 10
READY = 300
OURS, FOREIGN = "ours", "foreign"
SCHEMA = "graphile_worker"
BETTER = -5
"""The priority of backlogs that come before the ready jobs, whose priority is 0."""

_INSERT = f"""
insert into {SCHEMA}._private_jobs
  (task_id, payload, job_queue_id, priority, run_at, attempts, max_attempts)
select
  (select id from {SCHEMA}._private_tasks where identifier = '{{task}}'),
  json_build_object('number', number), {{queue}}, {{priority}}, {{run_at}}, {{attempts}}, 25
from generate_series(1, {{count}}) number
"""
EARLIER = "now() - interval '1 hour' + number * interval '1 millisecond'"
LATER = "now() + interval '1 day' + number * interval '1 millisecond'"


def jobs(
    count: int,
    *,
    task: str = OURS,
    queue: str = "null",
    priority: int | str = 0,
    run_at: str = EARLIER,
    attempts: int = 0,
) -> str:
    """A statement that adds `count` jobs; in expressions `number` counts from 1."""
    return _INSERT.format(
        count=count, task=task, queue=queue, priority=priority, run_at=run_at, attempts=attempts
    )


def queues(count: int) -> str:
    """A statement that adds `count` queues; with fresh tables their ids count from 1."""
    return (
        f"insert into {SCHEMA}._private_job_queues (queue_name) "
        f"select 'queue ' || number from generate_series(1, {count}) number"
    )


LOCK_FIRST_QUEUE = (
    f"update {SCHEMA}._private_job_queues set locked_at = now(), locked_by = 'another pool' where id = 1"
)


@dataclass(frozen=True)
class Backlog:
    """How to create one, and what a fetch may cost beside it."""

    statements: tuple[str, ...] = ()
    priorities: int = 1
    """Distinct priorities of waiting jobs; a fetch may probe each once or twice."""
    queues_may_be_next: bool = False
    """Whether jobs wait for a free queue, or for too many queues to check."""
    is_plain: bool = False
    """Whether all waiting jobs have one priority and none is in a queue."""
    busy_queues_hide: int = 0
    """Queues that a fetch may have to check one by one, because jobs of busy ones come first."""


BACKLOGS = {
    "nothing": Backlog(is_plain=True),
    "future": Backlog((jobs(SIZE, run_at=LATER),), is_plain=True),
    "future over 100 priorities": Backlog(
        (jobs(SIZE, priority="number % 100 - 50", run_at=LATER),), priorities=100
    ),
    "permanently failed": Backlog((jobs(SIZE, priority=BETTER, attempts=25),), is_plain=True),
    "one busy queue": Backlog(
        (queues(1), jobs(SIZE, queue="1", priority=BETTER), LOCK_FIRST_QUEUE), priorities=2
    ),
    "a busy queue in front of many": Backlog(
        (
            queues(1000),
            jobs(SIZE, queue="1", priority=BETTER),
            jobs(SIZE // 2, queue="2 + number % 999"),
            LOCK_FIRST_QUEUE,
        ),
        priorities=2,
        queues_may_be_next=True,
        busy_queues_hide=1000,
    ),
    "queues with one job each": Backlog(
        (queues(QUEUES), jobs(QUEUES, queue="number")), queues_may_be_next=True
    ),
}
"""Backlogs beside which every fetch must stay cheap."""

FOREIGN_JOBS = (jobs(SIZE, task=FOREIGN, priority=BETTER), jobs(SIZE // 10, task=FOREIGN, run_at=LATER))
REFUSED_JOBS = (
    f"""alter table {SCHEMA}._private_jobs alter column flags set default '{{"no": true}}'""",
    jobs(SIZE, priority=BETTER),
    jobs(SIZE // 10, run_at=LATER),
    f"""alter table {SCHEMA}._private_jobs alter column flags set default '{{"yes": true}}'""",
)
"""Jobs with the flag `no`; those that are added later have the flag `yes`."""


async def prepare(connection: Any) -> None:
    """Register the tasks, and take the statistics of an empty table."""
    await connection.execute(f"alter table {SCHEMA}._private_jobs set (autovacuum_enabled = off)")
    await connection.execute(f"alter table {SCHEMA}._private_job_queues set (autovacuum_enabled = off)")
    await connection.execute(
        f"insert into {SCHEMA}._private_tasks (identifier) values ('{OURS}'), ('{FOREIGN}')"
    )
    await connection.execute("vacuum analyze")


async def fill(connection: Any, statements: tuple[str, ...]) -> None:
    """Create the backlog."""
    await prepare(connection)
    for statement in statements:
        await connection.execute(statement)
