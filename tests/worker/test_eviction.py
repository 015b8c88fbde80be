"""Which jobs a pool has lost after its lease lapsed; tests/recovery/test_evicted.py has the rest."""

from __future__ import annotations

from collections.abc import Collection

import asyncpg

from graphile_worker.clock import SystemClock
from graphile_worker.hooks.events import PoolEvicted
from graphile_worker.recovery.lease import Lease
from graphile_worker.schema_name import SchemaName
from graphile_worker.testing.recorder import EventRecorder
from graphile_worker.worker.eviction import EvictionCheck, lost_jobs
from graphile_worker.worker.lanes import AllSources
from graphile_worker.worker.session.locked_jobs import LockedJobs
from graphile_worker.worker.session.session import Sessions
from support.finished import a_job


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


async def test_what_a_write_without_an_answer_has_deleted_is_ours_beside_what_is_still_locked(
    database_url: str, recorder: EventRecorder
) -> None:
    locked, deleted, taken = a_job(1), a_job(2), a_job(3)

    async def still_locked(jobs: Collection[object]) -> set[int]:
        return {locked.id}

    async def gone(job_ids: Collection[int]) -> set[int]:
        return set(job_ids) & {deleted.id}

    async with asyncpg.create_pool(database_url, min_size=0, max_size=2) as pool:
        sessions = Sessions(pool, SchemaName(), "pool-1", Lease(), prepared_statements=True)
        sessions.locked_jobs.add([locked, deleted, taken])
        check = EvictionCheck(
            "pool-1",
            recorder.events,
            SystemClock(),
            sessions=sessions,
            source=AllSources([]),
            read_locked=still_locked,
            read_gone=gone,
            maybe_deleted=lambda: {deleted.id},
        )
        await check.run()
        await sessions.close()
    assert [event.jobs for event in recorder.of(PoolEvicted)] == [[taken]]
    assert not sessions.locked_jobs.is_lost(locked)
