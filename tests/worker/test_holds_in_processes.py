"""Held batches of tasks that run in processes of their own: each job runs once, and a death fails one job."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from executors import heavy_tasks as tasks
from graphile_worker.hooks.events import JobFailed, JobSucceeded, PoolEvicted
from support.held_load import Holding
from support.working import SCHEMA, Jobs, headline, until

COUNT = 200
SHORTLY = 2.0  # seconds to hold a batch
OPTIONS: dict[str, Any] = {"concurrency": 10, "executors": {"process.processes": 2}}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "notes"
    path.touch()
    return path


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


async def add_notes(jobs: Jobs, file: Path, count: int = COUNT) -> list[int]:
    rows = await jobs.connection.fetch(
        f"select job.id from generate_series(1, $2::integer) n, {SCHEMA}.add_job('note', "
        "json_build_object('n', n, 'file', $1::text)) job",
        str(file),
        count,
    )
    return [row["id"] for row in rows]


async def test_short_jobs_in_processes_are_held_and_run_once(
    holding: Holding, jobs: Jobs, file: Path
) -> None:
    await holding.start({"note": tasks.note}, **OPTIONS)
    ids = await holding.add(lambda: add_notes(jobs, file))
    await until(lambda: len(lines(file)) > 0)
    assert await holding.row_locked(ids[-1:]) == ids[-1:]
    await jobs.until_gone()
    assert holding.last_fetch == "held"
    assert Counter(lines(file)) == Counter(map(str, range(1, COUNT + 1)))
    await until(lambda: sorted(holding.of(JobSucceeded, ids)) == ids)


async def test_a_held_job_that_kills_its_process_fails_and_others_run_once(
    holding: Holding, jobs: Jobs, file: Path
) -> None:
    await holding.start({"note": tasks.note, "crash": tasks.crash}, **OPTIONS)

    async def add() -> tuple[list[int], int]:
        some = await add_notes(jobs, file, COUNT // 2)
        crash = await jobs.add("crash", {"how": "SIGKILL", "file": str(file)})
        return [*some, *await add_notes(jobs, file, COUNT // 2)], crash

    ids, crash = await holding.add(add)
    await until(lambda: "SIGKILL" in lines(file))
    await jobs.until_left(crash)
    assert holding.last_fetch == "held"
    await until(lambda: holding.of(JobFailed, [crash]) == [crash])
    row = await jobs.one()
    assert (row["attempts"], row["locked_by"]) == (1, None)
    assert headline(row).startswith("the process that ran the task was ended by SIGKILL")
    assert Counter(lines(file)) == Counter({"SIGKILL": 1, **{str(n): 2 for n in range(1, COUNT // 2 + 1)}})
    await until(lambda: sorted(holding.of(JobSucceeded, ids)) == sorted(ids))


async def test_a_job_in_a_process_that_outlasts_its_batch_is_locked_and_goes_on(
    holding: Holding, jobs: Jobs, file: Path
) -> None:
    await holding.start({"note": tasks.note}, hold=SHORTLY, **OPTIONS)
    job_id = await holding.add(lambda: jobs.add("note", {"n": "late", "file": str(file), "after": 1}))
    await until(lambda: holding.are_locked("note", 1))
    assert holding.last_fetch == "held"
    with file.open("a") as notes:
        notes.write("go on\n")
    await jobs.until_gone()
    assert lines(file) == ["go on", "late"]
    await until(lambda: holding.of(JobSucceeded, [job_id]) == [job_id])
    assert holding.recorder.count(PoolEvicted) == 0
