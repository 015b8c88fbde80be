"""Tasks that call sys.exit() in a child task: the worker stops as on a signal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.worker_process import Start, let_go, until_disconnected
from support.working import Jobs


@pytest.fixture(params=["uvloop", "asyncio"])
def loop_of(request: pytest.FixtureRequest, folder: Path) -> dict[str, str]:
    """The environment of a worker with this event loop."""
    if request.param == "uvloop":
        pytest.importorskip("uvloop")
        return {}
    modules = folder / "modules"
    modules.mkdir()
    (modules / "uvloop.py").write_text("raise ImportError\n")
    return {"PYTHONPATH": str(modules)}


@pytest.mark.parametrize(
    ("how", "code", "status"), [("task group", 3, 3), ("gather", 0, 1), ("gather", "interrupt", 130)]
)
async def test_an_exit_in_a_child_task_stops_the_worker_gracefully(
    start: Start,
    database_url: str,
    jobs: Jobs,
    folder: Path,
    loop_of: dict[str, str],
    how: str,
    code: Any,
    status: int,
) -> None:
    waiting = await jobs.add("wait_for_test", priority=-2)
    exiting = await jobs.add("exit_in_child", {"how": how, "code": code}, priority=-1)
    await jobs.add_many("sleep_long", 5)
    worker = start("-j", 2, "--grace", 60, url=database_url, **loop_of).wait_for("started\n")
    worker.wait_for("in an asyncio task that it started; stopping the worker")
    let_go(folder)
    assert worker.ended() == status
    assert "finished\n" in worker.output
    rows = {row["id"]: row for row in await jobs.all()}
    assert waiting not in rows
    assert rows.pop(exiting)["attempts"] == 1
    assert {(row["attempts"], row["last_error"]) for row in rows.values()} == {(0, None)}
    assert await jobs.locked() == 0
    await until_disconnected(jobs)


@pytest.mark.parametrize("once", [False, True])
async def test_a_job_that_outlives_the_child_that_exits_is_returned(
    start: Start, database_url: str, jobs: Jobs, loop_of: dict[str, str], once: bool
) -> None:
    await jobs.add("exit_in_child", {"how": "create_task", "code": "bye"})
    options = ["--once"] if once else []
    worker = start("--grace", 1, *options, url=database_url, **loop_of)
    assert worker.ended() == 1
    job = await jobs.one()
    assert (job["attempts"], job["locked_by"]) == (0, None)
    assert job["last_error"].startswith("Interrupted")


async def test_with_several_processes_all_of_them_stop(start: Start, database_url: str, jobs: Jobs) -> None:
    await jobs.add("exit_in_child", {"how": "gather", "code": 3})
    worker = start("--processes", 2, url=database_url)
    assert worker.ended() == 3
    assert "exited with status 3; stopping the others" in worker.output
    assert await jobs.locked() == 0
