"""What must hold on every cluster; the tests of Dask and of Ray call it with their executors."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from contrib import cluster_tasks as tasks
from graphile_worker import make_worker_utils
from support.working import PATIENCE, Jobs, Workers, headline, until

LONG = 4 * PATIENCE


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


async def everything_crosses(
    executor: Any, database_url: str, jobs: Jobs, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    await jobs.add("fail_there")
    await jobs.add("refuse_there")
    await jobs.add("add_there")
    await jobs.add("each_there", [1, 2, 3])
    async with make_worker_utils(connection_string=database_url) as utils:
        handle = await utils.add_job(tasks.report_there, {"n": 20}, keep=True)
        with caplog.at_level(logging.INFO):
            await workers.once(tasks.ALL, concurrency=5, executors={"cluster": executor}, timeout=LONG)
        assert await handle.result(timeout=PATIENCE) == {"twice": 40}
    failed, refused, adding, each = await jobs.all()
    assert headline(failed) == "ValueError: not there"
    assert "cluster_tasks.py" in failed["last_error"]
    assert headline(refused) == "contrib.cluster_tasks.Unpicklable: no pickle 17"
    assert "helpers.add_job needs the database connections of the worker" in headline(adding)
    assert json.loads(each["payload"]) == [1, 3]
    logged = [record for record in caplog.records if record.getMessage().endswith("at work over there")]
    assert [record.__dict__["task_identifier"] for record in logged] == ["report_there"]


async def a_killed_process_fails_the_attempt_and_the_function_ran_once(
    settings: dict[str, Any], jobs: Jobs, workers: Workers, file: Path
) -> str:
    """Returns the error."""
    await jobs.add("die_there", {"file": str(file)})
    await workers.once(tasks.ALL, executors=settings, timeout=LONG)
    assert lines(file) == ["die"]
    return headline(await jobs.one())


async def two_workers_run_a_thousand_jobs_once(
    executor: Callable[[], Any], jobs: Jobs, workers: Workers, file: Path
) -> None:
    """Both workers use the same cluster. Beside the thousand, time limits end tasks that wait without end."""
    await jobs.connection.execute(
        "select graphile_worker.add_job('note_there', json_build_object('n', n, 'file', $1::text)) "
        "from generate_series(1, 1000) n",
        str(file),
    )
    await jobs.add("wait_there", {"file": str(file)})
    await jobs.add("sleep_there", {"file": str(file)})
    made = [executor(), executor()]
    await asyncio.gather(
        *(
            workers.once(
                tasks.ALL, concurrency=25, timeout_grace=10.0, executors={"cluster": each}, timeout=LONG
            )
            for each in made
        )
    )
    limit = f"the task ran longer than its time limit of {tasks.LIMIT:g} s"
    assert {headline(row) for row in await jobs.all()} == {limit}
    assert Counter(lines(file)) == Counter([*map(str, range(1, 1001)), "cancelled", "noticed"])


async def a_running_job_is_shown_and_cancelled(
    executor: Any, database_url: str, jobs: Jobs, workers: Workers, file: Path, task: str
) -> str:
    """Returns where it ran. `task` waits without end, after it has reported progress."""
    runner = await workers.start(
        tasks.ALL, heartbeat_interval=0.2, timeout_grace=5.0, executors={"cluster": executor}
    )
    async with make_worker_utils(connection_string=database_url) as utils:
        handle = await utils.add_job(task, {"file": str(file)}, keep=True)

        async def is_shown() -> bool:
            (worker,) = await utils.list_workers()
            return [each.job_id for each in worker.executors or ()] == [handle.id]

        await until(is_shown)
        (worker,) = await utils.list_workers()
        assert worker.executors is not None
        (place,) = worker.executors
        assert place.executor == "cluster"
        assert place.memory is None or place.memory > 1_000_000
        await until(lambda: bool(lines(file)))

        async with asyncio.timeout(PATIENCE):
            notes = [progress.note async for progress in _first(utils.jobs.watch(handle.id))]
        assert notes == ["waiting"]
        stack = await utils.jobs.get_stack(handle.id, timeout=PATIENCE)
        assert f"in {task}" in stack.stack
        assert stack.place == place.place
        assert "cluster_tasks.py" in stack.stack.split("\n")[0], stack.stack
        await utils.cancel_jobs([handle.id])
        await until(lambda: executor.places("cluster") == [])
        await jobs.until_gone()
    await workers.stop(runner)
    return place.place


async def a_lost_cluster_fails_the_attempt_and_the_next_one_runs_on_the_new_one(
    executor: Any,
    jobs: Jobs,
    workers: Workers,
    file: Path,
    *,
    lose: Callable[[], None],
    again: Callable[[], None],
) -> str:
    """Returns the error of the first attempt."""
    await jobs.add("hang_once_there", {"file": str(file)})
    await workers.start(tasks.ALL, executors={"cluster": executor}, poll_interval=0.5)
    await until(lambda: lines(file) == ["attempt 1"])
    await asyncio.to_thread(lose)

    async def has_failed() -> bool:
        return (await jobs.one())["last_error"] is not None

    await until(has_failed)
    error = headline(await jobs.one())
    await asyncio.to_thread(again)
    await jobs.make_due()
    await until(lambda: len(lines(file)) > 1, timeout=LONG)
    await jobs.until_gone()
    return error


async def _first(values: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for value in values:
        yield value
        return
