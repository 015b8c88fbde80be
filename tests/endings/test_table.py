"""Every ending, for every kind of task and job, and for workers that are killed before they write it."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphile_worker.queries.write_plan import CUT_OFF
from recovery.dead import QUICK_ENVIRONMENT
from support.worker_process import Start, starting
from support.working import MODES, SCHEMA, Jobs, Workers, headline, until

TASKS = Path(__file__).with_name("tasks")
ENDINGS = ["snooze", "retry_in", "give_up"]
SHAPES = ["plain", "returned", "thread", "queue", "key", "replaced", "batch", "executable"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with starting(tmp_path) as start:
        yield start


@pytest.fixture
async def table(jobs: Jobs) -> dict[str, dict[str, int]]:
    """The ids of a job for every ending and shape."""
    await jobs.connection.execute("create table ran (job_id bigint, shape text)")
    return {how: {shape: await added(jobs, how, shape) for shape in SHAPES} for how in ENDINGS}


async def added(jobs: Jobs, how: str, shape: str) -> int:
    if shape == "batch":
        return await jobs.add("end_batch", ["complete", how])
    if shape in ("thread", "executable"):
        return await jobs.add("end_in_thread" if shape == "thread" else "script", {"how": how})
    options: dict[str, Any] = {
        "queue": {"queue": f"queue of {how}"},
        "key": {"key": f"key of {how}"},
        "replaced": {"key": f"replaced {how}"},
    }.get(shape, {})
    job_id = await jobs.add(
        "end", {"how": how, "return": shape == "returned", "replace": shape == "replaced"}, **options
    )
    if shape == "queue":
        await jobs.add("end", {"how": "complete"}, **options)  # has to wait for the one before
    return job_id


async def rows(jobs: Jobs) -> dict[int, Any]:
    return {
        row["id"]: row
        for row in await jobs.connection.fetch(
            "select job.*, extract(epoch from run_at - now()) as run_in, queue.locked_at as queue_locked_at "
            f"from {SCHEMA}._private_jobs job "
            f"left join {SCHEMA}._private_job_queues queue on queue.id = job.job_queue_id"
        )
    }


def check_row(row: Any, how: str, shape: str, *, was_killed: bool = False) -> None:
    assert row["locked_at"] is None
    assert row["queue_locked_at"] is None
    is_replaced = shape == "replaced"
    assert row["is_available"] is not (how == "give_up" or is_replaced)
    assert row["attempts"] == (25 if how == "give_up" or is_replaced else 0 if how == "snooze" else 1)
    if shape == "batch":
        assert json.loads(row["payload"]) == [how]
    if is_replaced and was_killed:
        assert row["last_error"].startswith("Not run again: its worker died")
        return
    if row["is_available"]:
        assert 5000 < row["run_in"] <= 6000
    if how == "snooze":
        if not was_killed:
            assert row["last_error"] == (CUT_OFF if is_replaced else None)
        return
    reason = {"retry_in": "busy", "give_up": "no way"}[how]
    assert reason in (row["last_error"] if shape == "batch" else headline(row))


async def alerts(jobs: Jobs) -> list[Any]:
    """The payloads of what `on_failure` added."""
    found = [json.loads(row["payload"]) for row in await jobs.all() if row["identifier"] == "alert"]
    assert len({payload["job_id"] for payload in found}) == len(found)
    return found


async def errors(jobs: Jobs) -> set[int]:
    rows = await jobs.connection.fetch(f"select job_id, attempt from {SCHEMA}._private_py_errors")
    assert {row["attempt"] for row in rows} == {1}
    return {row["job_id"] for row in rows}


@pytest.mark.parametrize("mode", list(MODES))
async def test_every_ending_for_every_kind_of_job(
    table: dict[str, dict[str, int]], jobs: Jobs, workers: Workers, mode: str
) -> None:
    await workers.once(None, task_directory=str(TASKS), concurrency=4, **MODES[mode])
    found = await rows(jobs)
    for how in ENDINGS:
        for shape in SHAPES:
            check_row(found[table[how][shape]], how, shape)
    failed = {table[how][shape] for how in ENDINGS[1:] for shape in SHAPES}
    assert await errors(jobs) == failed
    told = {payload["job_id"]: payload for payload in await alerts(jobs)}
    given_up = {job_id for shape, job_id in table["give_up"].items() if shape != "executable"}
    assert told.keys() == given_up | {table["retry_in"]["replaced"]}
    alert = told[table["give_up"]["batch"]]
    assert alert["payload"] == ["give_up"]
    assert (alert["task_identifier"], alert["attempts"], alert["max_attempts"]) == ("end_batch", 1, 25)
    ran = await jobs.connection.fetch("select job_id, count(*) from ran group by 1")
    assert {row["count"] for row in ran} == {1}
    kept = await jobs.connection.fetch(f"select job_id, attempts from {SCHEMA}._private_py_history")
    assert {row["job_id"] for row in kept} == {*table["give_up"].values()} | {
        table[how]["replaced"] for how in ENDINGS
    }
    assert {row["attempts"] for row in kept} == {1}


@pytest.mark.timeout(180)
async def test_a_worker_that_is_killed_before_it_writes_changes_nothing(
    table: dict[str, dict[str, int]], jobs: Jobs, start: Start, database_url: str
) -> None:
    first = start(
        "-j", 30, url=database_url, tasks=TASKS, GRAPHILE_WORKER_FAIL_JOB_BATCH_DELAY="600",
        **QUICK_ENVIRONMENT,
    ).ready()  # fmt: skip
    running = sum(len(shapes) - 1 for shapes in table.values())  # executables do not note it

    async def all_ran() -> bool:
        ran: int = await jobs.connection.fetchval("select count(distinct job_id) from ran")
        return ran >= running

    await until(all_ran)
    assert await alerts(jobs) == []
    first.send(signal.SIGKILL)
    assert first.ended() == 137
    start("-j", 30, url=database_url, tasks=TASKS, **QUICK_ENVIRONMENT).ready()
    wanted = {job_id for shapes in table.values() for job_id in shapes.values()}

    async def all_ended() -> bool:
        found = await rows(jobs)
        return (
            all(
                found[job_id]["locked_at"] is None
                and (not found[job_id]["is_available"] or found[job_id]["run_in"] > 5000)
                for job_id in wanted
            )
            and await jobs.locked() == 0
        )

    await until(all_ended)
    found = await rows(jobs)
    for how in ENDINGS:
        for shape in SHAPES:
            check_row(found[table[how][shape]], how, shape, was_killed=True)
    told = {payload["job_id"] for payload in await alerts(jobs)}
    given_up = {job_id for shape, job_id in table["give_up"].items() if shape != "executable"}
    assert told == given_up | {table[how]["replaced"] for how in ENDINGS}  # which recovery has ended
