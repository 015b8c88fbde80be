"""Which jobs a pool has lost after its lease lapsed; tests/recovery/test_evicted.py has the rest."""

from __future__ import annotations

from graphile_worker.worker.eviction import lost_jobs
from graphile_worker.worker.session.locked_jobs import LockedJobs
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
