"""Every directive, for every kind of task and job, and for workers that are killed before they write it."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphile_worker.database.statements.write_plan import CUT_OFF
from recovery.dead import QUICK_ENVIRONMENT
from support.worker_process import Start, starting
from support.working import MODES, SCHEMA, Jobs, Workers, headline, until

TASKS = Path(__file__).with_name("tasks")
ALL_SHAPES = ["plain", "returned", "thread", "queue", "key", "replaced", "batch", "executable"]
SHAPES = {
    "complete": ALL_SHAPES,
    "snooze": ALL_SHAPES,
    "retry_in": ALL_SHAPES,
    "give_up": ALL_SHAPES,
    # An error is raised, and an executable has no rule that makes it wait long enough for this test.
    "fail": ["plain", "thread", "queue", "key", "replaced", "batch"],
    "fail_last": ["plain", "thread", "queue", "key", "replaced", "batch", "executable"],
    "expire": ["plain", "thread", "queue", "key", "batch", "executable"],  # its task is not called
}
CASES = [(how, shape) for how, shapes in SHAPES.items() for shape in shapes]
GONE = ("complete", "expire")
REASONS = {"retry_in": "busy", "give_up": "no way", "fail": "broken", "fail_last": "broken"}
EXPIRED = "py:expires=1000000000"  # in 2001

Table = dict[tuple[str, str], int]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with starting(tmp_path) as start:
        yield start


@pytest.fixture
async def table(jobs: Jobs) -> Table:
    """The ids of a job for every directive and shape."""
    await jobs.connection.execute("create table ran (job_id bigint, shape text)")
    return {(how, shape): await added(jobs, how, shape) for how, shape in CASES}


async def added(jobs: Jobs, how: str, shape: str) -> int:
    options: dict[str, Any] = {
        "queue": {"queue": f"queue of {how}"},
        "key": {"key": f"key of {how}"},
        "replaced": {"key": f"replaced {how}"},
    }.get(shape, {})
    flags = {"complete": ["py:keep"], "expire": ["py:keep", EXPIRED]}.get(how)
    attempts = 1 if how == "fail_last" else None
    if shape == "batch":
        return await jobs.add("end_batch", ["complete", how], flags=flags, max_attempts=attempts)
    name = {"thread": "end_in_thread", "executable": "script"}.get(shape, "end")
    payload = {"how": how, "return": shape == "returned", "replace": shape == "replaced"}
    job_id = await jobs.add(name, payload, flags=flags, max_attempts=attempts, **options)
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


def is_final(how: str, shape: str) -> bool:
    """Whether the job has failed permanently, if it is still there."""
    return how in ("give_up", "fail_last") or shape == "replaced"


def check_row(row: Any, how: str, shape: str, *, was_killed: bool = False) -> None:
    is_replaced = shape == "replaced"
    if how in GONE or (is_replaced and was_killed):
        assert row is None
        return
    assert row["locked_at"] is None
    assert row["queue_locked_at"] is None
    assert row["is_available"] is not is_final(how, shape)
    used = 1 if how == "fail_last" else 25
    assert row["attempts"] == (used if is_final(how, shape) else 0 if how == "snooze" else 1)
    if shape == "batch":
        assert json.loads(row["payload"]) == [how]
    if row["is_available"]:
        assert 5000 < row["run_in"] <= 6000
    if how == "snooze":
        if not was_killed:
            assert row["last_error"] == (CUT_OFF if is_replaced else None)
        return
    assert REASONS[how] in (row["last_error"] if shape in ("batch", "executable") else headline(row))


async def alerts(jobs: Jobs) -> list[Any]:
    """The payloads of what `on_failure` added."""
    found = [json.loads(row["payload"]) for row in await jobs.all() if row["identifier"] == "alert"]
    assert len({payload["job_id"] for payload in found}) == len(found)
    return found


async def errors(jobs: Jobs) -> set[int]:
    rows = await jobs.connection.fetch(f"select job_id, attempt from {SCHEMA}._private_py_errors")
    assert len({row["job_id"] for row in rows}) == len(rows)
    return {row["job_id"] for row in rows}


async def ends(jobs: Jobs) -> dict[int, str]:
    """How each job ended, which must be there once."""
    rows = await jobs.connection.fetch(f"select job_id, state from {SCHEMA}._private_py_history")
    assert len({row["job_id"] for row in rows}) == len(rows)
    return {row["job_id"]: row["state"] for row in rows}


def ends_of(table: Table, *, was_killed: bool = False) -> dict[int, str]:
    states = {"complete": "completed", "expire": "expired"}
    return {
        job_id: "cancelled" if was_killed and shape == "replaced" else state
        for (how, shape), job_id in table.items()
        if (state := states.get(how) or ("failed" if is_final(how, shape) else None)) is not None
    }


@pytest.mark.parametrize("mode", list(MODES))
async def test_every_ending_for_every_kind_of_job(
    table: Table, jobs: Jobs, workers: Workers, mode: str
) -> None:
    await workers.once(None, task_directory=str(TASKS), concurrency=4, **MODES[mode])
    found = await rows(jobs)
    for (how, shape), job_id in table.items():
        check_row(found.get(job_id), how, shape)
    assert await errors(jobs) == {job_id for (how, _), job_id in table.items() if how in REASONS}
    told = {payload["job_id"]: payload for payload in await alerts(jobs)}
    assert told.keys() == {
        job_id
        for (how, shape), job_id in table.items()
        if how in REASONS and is_final(how, shape) and shape != "executable"
    }
    alert = told[table["give_up", "batch"]]
    assert alert["payload"] == ["give_up"]
    assert (alert["task_identifier"], alert["attempts"], alert["max_attempts"]) == ("end_batch", 1, 25)
    ran = await jobs.connection.fetch("select job_id, count(*) from ran group by 1")
    assert {row["count"] for row in ran} == {1}
    assert {row["job_id"] for row in ran}.isdisjoint(
        job_id for (how, _), job_id in table.items() if how == "expire"
    )
    assert await ends(jobs) == ends_of(table)
    assert {payload["attempts"] for payload in told.values()} == {1}


@pytest.mark.timeout(180)
async def test_a_worker_that_is_killed_before_it_writes_changes_nothing(
    table: Table, jobs: Jobs, start: Start, database_url: str
) -> None:
    first = start(
        "-j", len(table) + len(SHAPES), url=database_url, tasks=TASKS,
        GRAPHILE_WORKER_FAIL_JOB_BATCH_DELAY="600", GRAPHILE_WORKER_COMPLETE_JOB_BATCH_DELAY="600",
        **QUICK_ENVIRONMENT,
    ).ready()  # fmt: skip
    # Expired jobs are not run, and executables do not note it: both are locked.
    running = {job_id for (how, shape), job_id in table.items() if how != "expire" and shape != "executable"}
    wanted = set(table.values())

    async def all_ran() -> bool:
        ran = {row["job_id"] for row in await jobs.connection.fetch("select distinct job_id from ran")}
        locked = {job_id for job_id, row in (await rows(jobs)).items() if row["locked_at"] is not None}
        return ran >= running and locked >= wanted

    await until(all_ran)
    assert await alerts(jobs) == []
    assert await ends(jobs) == {}
    first.send(signal.SIGKILL)
    assert first.ended() == 137
    assert await ends(jobs) == {}
    start("-j", 30, url=database_url, tasks=TASKS, **QUICK_ENVIRONMENT).ready()

    async def all_ended() -> bool:
        left = [row for job_id, row in (await rows(jobs)).items() if job_id in wanted]
        return (
            all(
                row["locked_at"] is None and (not row["is_available"] or row["run_in"] > 5000) for row in left
            )
            and await jobs.locked() == 0
        )

    await until(all_ended)
    found = await rows(jobs)
    for (how, shape), job_id in table.items():
        check_row(found.get(job_id), how, shape, was_killed=True)
    told = {payload["job_id"] for payload in await alerts(jobs)}
    assert told == {
        job_id
        for (how, shape), job_id in table.items()
        if how in REASONS and is_final(how, shape) and shape not in ("executable", "replaced")
    }
    assert await ends(jobs) == ends_of(table, was_killed=True)
    # Recovery deletes jobs that were replaced: they have not failed.
    assert await errors(jobs) == {
        job_id for (how, shape), job_id in table.items() if how in REASONS and shape != "replaced"
    }
