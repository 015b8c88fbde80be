"""Every method of the client on every library; a blocking one never waits for an event loop."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from foreign.places import EACH_ADAPTER, Place
from graphile_worker import JobSpec, WorkerUtils
from graphile_worker.database.connections.bound import run_blocking
from graphile_worker.database.connections.connection import pause
from graphile_worker.database.migrations import BREAKING_REVISIONS
from graphile_worker.database.statements.cleanup import CLEANUP_TASKS
from graphile_worker.database.statements.inspection import JOB_ORDERS, JOB_STATES
from graphile_worker.options import JobFilter
from migrations.earlier import go_back
from recovery.dead import Graveyard

PLACE_NAMES = EACH_ADAPTER
LATER = datetime(2200, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


async def test_jobs_are_managed_and_listed(place: Place, observer: Any) -> None:
    utils, do = place.utils(), place.do
    full = await do(
        utils.add_job(
            "full", {"a": 1}, queue_name="q", run_at=LATER, max_attempts=3, priority=7, flags=["b", "a"]
        )
    )
    assert (full.run_at, full.max_attempts, full.priority) == (LATER, 3, 7)
    assert full.flags == {"a": True, "b": True}
    mixed = [JobSpec("ab"[n % 2], n, priority=n, queue_name="q", run_at=timedelta(days=1)) for n in range(4)]
    one, two, three, four = await do(utils.add_jobs(mixed))
    found = await do(utils.jobs.get(full.id))
    assert found is not None
    assert (found.queue_name, found.state, found.payload) == ("q", "scheduled", {"a": 1})
    assert await do(utils.jobs.get(-1)) is None
    changed = await do(utils.reschedule_jobs([one.id], run_at=LATER, priority=-32768, attempts=0))
    assert [(job.id, job.run_at, job.priority) for job in changed] == [(one.id, LATER, -32768)]
    failed = await do(utils.permanently_fail_jobs([two.id], "because"))
    assert [(job.id, job.last_error) for job in failed] == [(two.id, "because")]
    assert [job.id for job in await do(utils.complete_jobs([three.id]))] == [three.id]
    statistics = await do(utils.statistics.jobs())
    assert (statistics.jobs.scheduled, statistics.jobs.failed, statistics.queues) == (3, 1, 1)
    assert [(queue.queue_name, queue.jobs) for queue in await do(utils.queues.list())] == [("q", 4)]
    for state in (None, *JOB_STATES):
        for order in JOB_ORDERS:
            if order != "run_order" or state in (None, "ready", "scheduled"):
                filter = JobFilter(state=state, order=order, task_identifier="a", queue_name="q")
                assert {job.task_identifier for job in await do(utils.jobs.list(filter))} <= {"a"}
    page = JobFilter(order="run_order", after=one)
    assert [job.id for job in await do(utils.jobs.list(page))] == [four.id, full.id]


async def test_workers_are_listed_swept_and_cleaned_up_after(place: Place, observer: Any) -> None:
    utils, do = place.utils(), place.do
    graveyard = Graveyard(observer)
    await observer.execute("truncate graphile_worker._private_py_workers")
    orphan = await do(utils.add_job("orphan", queue_name="q", max_attempts=1))
    await do(utils.add_job("failed", max_attempts=1, job_key="k"))
    await place.commit()
    await graveyard.bury("pool-dead")
    await graveyard.give("pool-dead", orphan.id)
    [worker] = await do(utils.list_workers(all=True))
    assert (worker.id, worker.job_ids, worker.is_alive) == ("pool-dead", [orphan.id], False)
    await do(utils.sweep_stale_workers(dry_run=True))
    report = await do(utils.sweep_stale_workers())
    assert [(dead.id, dead.returned) for dead in report.recovered] == [("pool-dead", [orphan.id])]
    await do(utils.force_unlock_workers(["pool-x"]))
    jobs = await do(utils.jobs.list())
    await do(utils.permanently_fail_jobs([job.id for job in jobs]))
    cleaned = await do(utils.cleanup(CLEANUP_TASKS, task_identifiers_to_keep=["failed"]))
    assert (cleaned.permafailed_jobs, cleaned.task_identifiers, cleaned.job_queues) == (2, 1, 1)


async def test_the_schema_is_installed_and_upgraded_in_the_users_transaction(
    place: Place, observer: Any
) -> None:
    name = "odd %s $1 -- \"'name"
    utils = place.utils(name)
    report = await place.do(utils.migrate())
    assert (report.found_revision, report.revision, report.has_own_objects) == (None, 20, True)
    await place.do(utils.add_job("hello"))
    assert not (await place.do(utils.migrate())).changed
    await place.rollback()
    exists = await observer.fetchval("select count(*) from pg_namespace where nspname = $1", name)
    assert exists == 0


def test_waiting_for_a_loop_is_an_error() -> None:
    async def wait() -> None:
        await pause(object(), 0.0)  # type: ignore[arg-type]

    with pytest.raises(RuntimeError, match="waited for an event loop"):
        run_blocking(wait())


async def test_an_old_schema_is_upgraded(place: Place, observer: Any) -> None:
    await go_back(observer, 16)
    await observer.execute("alter table graphile_worker.migrations drop breaking")
    report = await place.do(place.utils().migrate())
    assert report.applied_revisions == (17, 18, 19, 20)
    await place.commit()
    breaking = await observer.fetch("select id from graphile_worker.migrations where breaking order by id")
    assert [row[0] for row in breaking] == sorted(BREAKING_REVISIONS)


@pytest.mark.parametrize("is_committed", [True, False])
async def test_the_ends_of_kept_jobs_belong_to_the_users_transaction(
    place: Place, observer: Any, is_committed: bool
) -> None:
    utils, do = place.utils(), place.do
    specs = [JobSpec("work", n, keep=True, keep_payload=True, job_key=f"k{n}") for n in range(4)]
    one, two, three, four = await WorkerUtils.bound(observer).add_jobs(specs)
    await do(utils.cancel_jobs([one.id], reason="because"))
    await do(utils.complete_jobs([two.id]))
    await do(utils.remove_job("k2"))
    await do(utils.cancel_jobs(filter=JobFilter(job_key="k3")))
    record = await do(utils.jobs.get_record(one))
    assert (record.history[0].error, record.history[0].payload) == ("because", 0)
    await (place.commit if is_committed else place.rollback)()
    rows = await observer.fetch(
        "select job_id, state from graphile_worker._private_py_history where job_id >= $1", one.id
    )
    ends = {one.id: "cancelled", two.id: "completed", three.id: "cancelled", four.id: "cancelled"}
    assert {row["job_id"]: row["state"] for row in rows} == (ends if is_committed else {})
    left = await observer.fetchval("select count(*) from graphile_worker._private_jobs")
    assert left == (0 if is_committed else 4)


@pytest.mark.parametrize("is_committed", [True, False])
async def test_running_jobs_are_cancelled_in_the_users_transaction(
    place: Place, observer: Any, is_committed: bool
) -> None:
    utils, do = place.utils(), place.do
    one, two = await WorkerUtils.bound(observer).add_jobs(
        [JobSpec("work", job_key=f"k{n}") for n in range(2)]
    )
    await observer.execute(
        "update graphile_worker._private_jobs set locked_at = now(), locked_by = 'pool-x' "
        "where id = any ($1)",
        [one.id, two.id],
    )
    report = await do(utils.jobs.cancel(one))
    assert ([job.id for job in report.asked], report.problem) == ([one.id], None)
    assert [job.id for job in (await do(utils.jobs.cancel(job_key="k1", reason="because"))).asked] == [two.id]
    await (place.commit if is_committed else place.rollback)()
    rows = await observer.fetch(
        "select job_id, reason from graphile_worker._private_py_cancels where job_id >= $1 order by 1", one.id
    )
    assert [tuple(row) for row in rows] == ([(one.id, None), (two.id, "because")] if is_committed else [])
