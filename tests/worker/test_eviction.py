"""Which jobs a pool has lost after its lease lapsed; tests/recovery/test_evicted.py has the rest."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import asyncpg

from graphile_worker.database.statements.fetch import get_jobs, register_tasks
from graphile_worker.hooks.events import PoolEvicted
from graphile_worker.recovery.lease import Lease
from graphile_worker.testing.results import EventRecorder
from graphile_worker.values.job import Job
from graphile_worker.values.schema_name import SchemaName
from graphile_worker.worker.session import LockedJobs, Sessions
from graphile_worker.worker.shutdown import EvictionCheck, lost_jobs
from support.finished import a_job
from support.pool_parts import pool_context
from support.working import SCHEMA, Jobs


def test_a_job_is_lost_if_it_is_held_here_but_no_longer_locked() -> None:
    locked_jobs = LockedJobs()
    jobs = [a_job(n) for n in range(3)]
    locked_jobs.add(jobs)
    assert lost_jobs(locked_jobs, jobs, {0, 2}) == [jobs[1]]


def test_a_job_that_ended_or_was_locked_again_since_is_not_lost() -> None:
    locked_jobs = LockedJobs()
    ended, locked_again = a_job(1), a_job(2)
    locked_jobs.add([ended, locked_again])
    locked_jobs.remove([ended])
    locked_jobs.add([a_job(2)])
    assert lost_jobs(locked_jobs, [ended, locked_again], set()) == []


class Parts:
    """The lanes and the sink of a pool that runs nothing, as the check sees them."""

    running: Collection[Job] = ()
    slots: Any

    def __init__(self, maybe_deleted: int) -> None:
        self._maybe_deleted = maybe_deleted

    def __iter__(self) -> Iterator[Parts]:
        self.slots = self
        return iter((self,))

    def maybe_deleted(self) -> set[int]:
        return {self._maybe_deleted}

    def drop(self, is_dropped: Callable[[Job], bool]) -> list[Job]:
        return []

    def cancel_lost(self, is_lost: Callable[[Job], bool]) -> None: ...

    def pulse(self) -> None: ...


async def test_what_a_write_without_an_answer_has_deleted_is_ours_beside_what_is_still_locked(
    database_url: str, recorder: EventRecorder, jobs: Jobs, connection: Any
) -> None:
    await jobs.add_many("step", 4)
    tasks = await register_tasks(connection, SchemaName(), ["step"])
    fetched = await get_jobs(connection, SchemaName(), pool_id="pool-1", tasks=tasks, limit=4)
    locked, deleted, gone, taken = fetched
    await connection.execute(f"delete from {SCHEMA}._private_jobs where id in ($1, $2)", deleted.id, gone.id)
    await connection.execute(
        f"update {SCHEMA}._private_jobs set locked_by = 'another' where id = $1", taken.id
    )
    context = pool_context(events=recorder.events)
    parts: Any = Parts(deleted.id)
    async with asyncpg.create_pool(database_url, min_size=0, max_size=2) as pool:
        sessions = Sessions(context, pool, Lease())
        sessions.locked_jobs.add(fetched)
        await EvictionCheck(context, sessions, parts, parts).run()
        await sessions.close()
    assert [event.jobs for event in recorder.of(PoolEvicted)] == [[gone, taken]]
    assert not sessions.locked_jobs.is_lost(locked)
