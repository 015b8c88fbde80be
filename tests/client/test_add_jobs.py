"""Adding many jobs."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from client.comparing import as_job
from graphile_worker.client import WorkerUtils, make_worker_utils
from graphile_worker.database.statements import add_many
from graphile_worker.errors import InvalidArgumentError
from graphile_worker.values.spec import JobSpec


@pytest.mark.compat("ADDS-1")
async def test_add_jobs_adds_one_row(utils: WorkerUtils) -> None:
    [job] = await utils.add_jobs([JobSpec("job1", {"a": 1})])
    [details] = await utils.jobs.list()
    assert as_job(details) == job


@pytest.mark.compat("ADDS-2")
async def test_the_same_key_in_four_calls_makes_one_job_with_the_last_payload(utils: WorkerUtils) -> None:
    for number in range(1, 5):
        [job] = await utils.add_jobs([JobSpec("job1", {"a": number}, job_key="UNIQUE")])
    [details] = await utils.jobs.list()
    assert as_job(details) == job
    assert (job.payload, job.revision) == ({"a": 4}, 3)


@pytest.mark.compat("ADDS-3")
async def test_the_two_modes_of_a_batch_replace_and_preserve_run_at(utils: WorkerUtils) -> None:
    seen = []
    modes = [("replace", 2200), ("preserve_run_at", 2201), (None, 2203)]
    for number, (mode, year) in enumerate(modes, start=1):
        spec = JobSpec("job1", {"a": number}, job_key="UNIQUE", run_at=datetime(year, 1, 1, tzinfo=UTC))
        [job] = await utils.add_jobs([spec.replace(job_key_mode=mode)])
        seen.append((job.revision, job.payload["a"], job.run_at.year))
    assert seen == [(0, 1, 2200), (1, 2, 2200), (2, 3, 2203)]


@pytest.mark.compat("ADDS-4")
async def test_each_spec_of_a_batch_may_have_its_own_mode(utils: WorkerUtils) -> None:
    def specs(year: int) -> list[JobSpec]:
        time = datetime(year, 1, 1, tzinfo=UTC)
        return [
            JobSpec("job1", job_key="default", run_at=time),
            JobSpec("job1", job_key="preserve", run_at=time, job_key_mode="preserve_run_at"),
            JobSpec("job1", run_at=time),
            JobSpec("job1", job_key="replace", run_at=time, job_key_mode="replace"),
        ]

    await utils.add_jobs(specs(2200))
    jobs = await utils.add_jobs(specs(2201))
    assert [job.run_at.year for job in jobs] == [2201, 2200, 2201, 2201]


@pytest.mark.compat("ADDS-5")
async def test_six_specs_make_six_jobs(utils: WorkerUtils) -> None:
    jobs = await utils.add_jobs([JobSpec("job1", {"a": number}) for number in range(1, 7)])
    assert [job.payload["a"] for job in jobs] == [1, 2, 3, 4, 5, 6]
    assert [as_job(details) for details in await utils.jobs.list()] == jobs


async def test_rows_come_back_in_order_with_the_right_task_names(utils: WorkerUtils) -> None:
    specs = [
        JobSpec(
            f"task_{number % 7}",
            {"number": number},
            queue_name=f"queue_{number % 3}" if number % 2 else None,
            job_key=f"key_{number}" if number % 5 == 0 else None,
            priority=number % 4 - 2,
            max_attempts=number % 9 + 1,
            flags=["odd", 'quoted " and \\'] if number % 2 else None,
        )
        for number in range(2500)
    ]
    jobs = await utils.add_jobs(specs)

    for spec, job in zip(specs, jobs, strict=True):
        assert job.task_identifier == spec.task_identifier
        assert job.payload == spec.payload
        assert job.key == spec.job_key
        assert (job.priority, job.max_attempts) == (spec.priority, spec.max_attempts)
        assert job.flags == (None if spec.flags is None else dict.fromkeys(spec.flags, True))
    listed = await utils.jobs.list(_all_filter())
    assert sorted(jobs, key=lambda job: job.id) == [as_job(details) for details in listed]
    queues = {details.id: details.queue_name for details in listed}
    assert [queues[job.id] for job in jobs] == [spec.queue_name for spec in specs]


def _all_filter() -> Any:
    from graphile_worker.database.statements.inspection import JobFilter

    return JobFilter(limit=100_000)


async def test_names_stay_right_when_the_schema_is_created_again(utils: WorkerUtils, connection: Any) -> None:
    await utils.add_jobs([JobSpec("a"), JobSpec("b")])
    await connection.execute("drop schema graphile_worker cascade")
    await utils.migrate()
    jobs = await utils.add_jobs([JobSpec("b"), JobSpec("a")])
    assert [job.task_identifier for job in jobs] == ["b", "a"]


async def test_no_specs_add_nothing(utils: WorkerUtils) -> None:
    assert await utils.add_jobs([]) == []


async def test_many_thousand_specs_go_in_one_transaction_and_leave_no_memory_behind(
    database_url: str, connection: Any
) -> None:
    count = 40_000
    chunks_held: list[int] = []

    def specs() -> Iterator[JobSpec]:
        for number in range(count):
            if number % 8_000 == 7_999:
                chunks_held.append(tracemalloc.get_traced_memory()[0])
            yield JobSpec(f"task_{number % 3}", number)

    async with make_worker_utils(connection_string=database_url) as utils:
        await utils.add_jobs([JobSpec("warm up")])
        tracemalloc.start()
        try:
            jobs = await utils.add_jobs(specs())
        finally:
            tracemalloc.stop()
    assert [job.payload for job in jobs] == list(range(count))
    assert [job.task_identifier for job in jobs[:4]] == ["task_0", "task_1", "task_2", "task_0"]
    assert len({job.raw_created_at for job in jobs}) == 1, "one transaction has one now()"
    assert await connection.fetchval("select count(*) from graphile_worker._private_jobs") == count + 1
    # What grows is the result alone: each Job with its strings is well below a kilobyte.
    growth = [after - before for before, after in pairwise(chunks_held)]
    assert max(growth) < 8_000 * 1024


async def test_jobs_that_are_not_asked_back_take_no_memory(database_url: str, connection: Any) -> None:
    count = 30_000
    held: list[int] = []

    def specs() -> Iterator[JobSpec]:
        for number in range(count):
            if number % 10_000 == 9_999:
                held.append(tracemalloc.get_traced_memory()[0])
            yield JobSpec("job1", number)

    async with make_worker_utils(connection_string=database_url) as utils:
        await utils.add_jobs([JobSpec("warm up")])
        tracemalloc.start()
        try:
            assert await utils.add_jobs(specs(), return_jobs=False) == []
        finally:
            tracemalloc.stop()
        assert await utils.add_jobs([JobSpec("job1")], return_jobs=False) == []
    assert await connection.fetchval("select count(*) from graphile_worker._private_jobs") == count + 2
    assert max(held) < min(held) + 1_000_000, "a tenth of what the rows would take"


async def test_a_late_mistake_undoes_the_whole_call(utils: WorkerUtils) -> None:
    specs = [JobSpec("job1", number) for number in range(2000)] + [JobSpec("job1", {1, object()})]
    with pytest.raises(InvalidArgumentError, match=r"specs\[2000\]\.payload: cannot be encoded as JSON"):
        await utils.add_jobs(specs)
    assert await utils.jobs.list() == []


async def test_a_late_mistake_leaves_the_transaction_of_the_caller_usable(
    utils: WorkerUtils, connection: Any
) -> None:
    specs = [JobSpec("job1", number) for number in range(2000)] + [JobSpec("job1", object())]
    async with connection.transaction():
        await utils.add_job("before", connection=connection)
        with pytest.raises(InvalidArgumentError):
            await utils.add_jobs(specs, connection=connection)
        await utils.add_job("after", connection=connection)
    assert [details.task_identifier for details in await utils.jobs.list()] == ["before", "after"]


async def test_large_payloads_are_sent_in_smaller_portions(
    utils: WorkerUtils, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(add_many, "CHUNK_BYTES", 1000)
    specs = [JobSpec("job1", "x" * size) for size in (10, 990, 5000, 1, 1, 990, 3)]
    jobs = await utils.add_jobs(specs)
    assert [len(job.payload) for job in jobs] == [10, 990, 5000, 1, 1, 990, 3]
    portions = [columns.payloads for columns, _ in add_many.chunks_of(specs, None)]
    assert [len(payloads) for payloads in portions] == [1, 1, 1, 3, 1]


async def test_many_batches_with_overlapping_keys_neither_fail_nor_lose(database_url: str) -> None:
    async with make_worker_utils(connection_string=database_url, max_pool_size=8) as utils:

        async def add(caller: int) -> None:
            for turn in range(10):
                keys = [f"key_{(caller + turn + step) % 12}" for step in range(8)]
                jobs = await utils.add_jobs([JobSpec("job1", [caller], job_key=key) for key in keys])
                assert [job.key for job in jobs] == keys

        await asyncio.gather(*(add(caller) for caller in range(8)))
        jobs = [as_job(details) for details in await utils.jobs.list()]
    assert len(jobs) == 12
    assert sum(len(job.payload) for job in jobs) == 8 * 10 * 8


@pytest.mark.compat("EXT-4")
async def test_the_same_key_twice_in_one_batch_is_refused_by_name(utils: WorkerUtils) -> None:
    specs = [JobSpec("job1", number) for number in range(1500)]
    specs[3] = JobSpec("job1", job_key="twice")
    specs[1400] = JobSpec("job2", job_key="twice")
    with pytest.raises(InvalidArgumentError, match=r"specs\[1400\]\.job_key: 'twice' occurs twice") as caught:
        await utils.add_jobs(specs)
    assert caught.value.argument == "specs[1400].job_key"
    assert await utils.jobs.list() == []


async def test_unsafe_dedupe_is_refused_in_a_batch(utils: WorkerUtils) -> None:
    specs = [JobSpec("job1"), JobSpec("job1", job_key="K", job_key_mode="unsafe_dedupe")]
    with pytest.raises(
        InvalidArgumentError, match=r"specs\[1\]\.job_key_mode: unsafe_dedupe works with add_job"
    ):
        await utils.add_jobs(specs)


async def test_what_is_not_a_spec_is_refused(utils: WorkerUtils) -> None:
    with pytest.raises(InvalidArgumentError, match=r"specs\[1\]: expected a JobSpec, got \{'identifier'"):
        await utils.add_jobs([JobSpec("job1"), {"identifier": "job2"}])  # type: ignore[list-item]
