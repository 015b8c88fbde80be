"""Tasks in processes of their own: what crosses, what a death costs, and how a job is ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from executors import heavy_tasks as tasks
from graphile_worker import make_worker_utils, run, task
from graphile_worker.errors import ConfigError, TaskLoadError
from graphile_worker.executors import ProcessExecutor
from graphile_worker.executors.process_pool import UNKNOWN, ProcessPace
from graphile_worker.hooks import Hooks
from support.command_line import clean_environment
from support.worker_process import WorkerProcess
from support.working import PATIENCE, Jobs, Workers, headline, until


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "notes"
    path.touch()
    return path


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


async def test_results_errors_logs_and_context_cross(
    database_url: str, jobs: Jobs, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    hooks = Hooks()
    hooks.carry_context(lambda: "trace 1", "executors.heavy_tasks:restored")
    await jobs.add("look_up")
    await jobs.add("refuse")
    await jobs.add("leave")
    await jobs.add("add_another")
    await jobs.add("give_up", {"give_up": True})
    await jobs.add("give_up")
    await jobs.add("each", [1, 2, 3])
    async with make_worker_utils(connection_string=database_url) as utils:
        handle = await utils.add_job(tasks.report, {}, keep=True)
        with caplog.at_level(logging.WARNING):
            await workers.once(tasks.all_tasks(), hooks=hooks, concurrency=4)
        result: Any = await handle.result(timeout=PATIENCE)
    assert (result["trace"], result["attempt"]) == ("trace 1", 1)
    assert result["pid"] != os.getpid()
    rows = await jobs.all()
    errors = {row["identifier"]: headline(row) for row in rows if row["last_error"]}
    assert errors == {
        "look_up": "KeyError: 'sku'",
        "refuse": "executors.heavy_tasks.Unpicklable: no pickle 17",
        "leave": "SystemExit: no more",
        "add_another": errors["add_another"],
        "give_up": "the card is stolen",
        "each": errors["each"],
    }
    assert "helpers.add_job needs the database connections of the worker" in errors["add_another"]
    by_name = {row["identifier"]: row for row in rows if row["last_error"]}
    assert "heavy_tasks.py" in by_name["look_up"]["last_error"]
    assert "caused by ValueError: the cause" in by_name["look_up"]["last_error"]
    # An exception arrives with its type: `dont_retry` applies.
    assert by_name["look_up"]["attempts"] == by_name["look_up"]["max_attempts"]
    assert json.loads(by_name["each"]["payload"]) == [1, 3]
    snoozed = next(row for row in rows if not row["last_error"])
    assert (snoozed["identifier"], snoozed["attempts"]) == ("give_up", 0)
    logged = {record.name: record for record in caplog.records if record.process != os.getpid()}
    assert logged["graphile_worker.job"].getMessage().endswith("at work in a process")
    assert logged["shop"].getMessage() == "sold 3"
    assert logged["shop"].__dict__["task_identifier"] == "report"


async def test_a_death_fails_one_job_and_others_run_once(jobs: Jobs, workers: Workers, file: Path) -> None:
    count = 300
    await jobs.connection.execute(
        "select graphile_worker.add_job('note', json_build_object('n', n, 'file', $1::text)) "
        "from generate_series(1, $2) n",
        str(file), count,
    )  # fmt: skip
    for how in ("SIGKILL", "segfault", "exit"):
        await jobs.connection.execute(
            "select graphile_worker.add_job('crash', json_build_object('how', $1::text, 'file', $2::text), "
            "priority => -1)",
            how, str(file),
        )  # fmt: skip
    await workers.once([tasks.note, tasks.crash], concurrency=32, executors={"process.processes": 2})
    errors = {json.loads(row["payload"])["how"]: headline(row) for row in await jobs.all()}
    assert errors == {
        "SIGKILL": "the process that ran the task was ended by SIGKILL; perhaps the system ran out of memory",
        "segfault": "the process that ran the task was ended by SIGSEGV",
        "exit": "the process that ran the task exited with status 7; a task must return or raise, not end "
        "its process",
    }
    ran = Counter(lines(file))
    assert len(ran) == count + 3
    assert set(ran.values()) == {1}


async def test_calls_behind_a_slow_one_run_elsewhere(
    jobs: Jobs, workers: Workers, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "graphile_worker.executors.process_pool.AHEAD", 0.5
    )  # on a busy machine no task is short
    await workers.start([tasks.note], concurrency=64, executors={"process.processes": 2})
    for n in range(100):  # the executor learns that they are short
        await jobs.add("note", {"n": n, "file": str(file)})
    await jobs.until_gone()
    await jobs.connection.execute(
        "select graphile_worker.add_job('note', case when n = 1 "
        "then json_build_object('n', n, 'file', $1::text, 'after', 139) "
        "else json_build_object('n', n, 'file', $1::text) end) from generate_series(1, 40) n",
        str(file),
    )
    await jobs.until_gone()
    assert Counter(lines(file)[100:]) == Counter(map(str, range(1, 41)))
    assert lines(file)[-1] == "1", "others waited for the slow one"


async def test_time_limits_end_what_does_not_end_by_itself(jobs: Jobs, workers: Workers, file: Path) -> None:
    # One process: those that wait for it do not use up their time.
    for name in ("sleep_for_ever", "wait_for_ever", "count_for_ever"):
        await jobs.add(name, {"file": str(file)})
    await workers.once(
        tasks.all_tasks(), concurrency=3, timeout_grace=1.0, executors={"process.processes": 1}
    )
    rows = await jobs.all()
    assert {headline(row) for row in rows} == {"the task ran longer than its time limit of 0.3 s"}
    cleaned, cancelled, pid = lines(file)
    assert (cleaned, cancelled) == ("cleaned up", "cancelled")
    await until(lambda: not _is_alive(int(pid)))


async def test_a_cancelled_batch_ends_when_all_its_items_have(
    jobs: Jobs, workers: Workers, file: Path
) -> None:
    """The process runs another job then."""
    await jobs.add("wait_in_items", [{"file": str(file)}] * 2)
    await workers.once(tasks.all_tasks(), executors={"process.processes": 1})
    assert lines(file) == ["cancelled after 0", "cancelled after 100"]
    (row,) = await jobs.all()
    assert headline(row) == "the task ran longer than its time limit of 0.3 s"


async def test_a_shutdown_returns_the_job_which_the_list_of_workers_has_shown(
    database_url: str, jobs: Jobs, workers: Workers, file: Path
) -> None:
    job_id = await jobs.add("count_for_ever", {"file": str(file)}, flags=["py:timeout=3600"])
    await jobs.add("count_for_ever", {"file": str(file)}, flags=["py:timeout=3600"])
    runner = await workers.start(
        [tasks.count_for_ever],
        grace=0.2,
        heartbeat_interval=0.1,
        concurrency=2,
        executors={"process": ProcessExecutor(1, kill_after=0.2)},
    )
    await until(lambda: len(lines(file)) == 1)
    async with make_worker_utils(connection_string=database_url) as utils:

        async def is_shown() -> bool:
            (worker,) = await utils.list_workers()
            return [each.job_id for each in worker.executors or ()] == [job_id]

        await until(is_shown)
        (worker,) = await utils.list_workers()
        assert worker.executors is not None
        (place,) = worker.executors
        assert (place.executor, place.place) == ("process", f"process {lines(file)[0]}")
        assert place.memory is None or place.memory > 1_000_000
    await workers.stop(runner)
    rows = await jobs.all()
    assert [row["attempts"] for row in rows] == [0, 0]
    assert await jobs.locked() == 0
    assert rows[0]["id"] == job_id
    assert len(lines(file)) == 1, "the job that waited was not begun"
    await until(lambda: not _is_alive(int(lines(file)[0])))


async def test_a_coroutine_that_a_shutdown_interrupts_is_returned(
    jobs: Jobs, workers: Workers, file: Path
) -> None:
    await jobs.add("wait_until_told", {"file": str(file), "ignores": True})
    runner = await workers.start([tasks.wait_until_told], grace=0.2)
    await until(lambda: lines(file) == ["waits"])
    await workers.stop(runner)
    row = await jobs.one()
    assert (row["attempts"], row["locked_by"]) == (0, None)
    assert headline(row).startswith("Interrupted")


async def test_a_process_is_replaced_by_count_and_by_memory(
    jobs: Jobs, workers: Workers, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for size in (10, 300_000_000, 10, 10):
        await jobs.add("use_memory", {"file": str(file), "bytes": size}, queue="one after another")
    executor = ProcessExecutor(1, max_jobs=2, max_memory=200_000_000)
    with caplog.at_level(logging.INFO, "graphile_worker.executors"):
        await workers.once([tasks.use_memory], executors={"process": executor})
    first, second, third, fourth = lines(file)
    assert first == second != third == fourth
    assert executor.places("process") == []


async def test_a_killed_worker_takes_its_processes_along_and_the_job_runs_elsewhere(
    database_url: str, jobs: Jobs, workers: Workers, file: Path
) -> None:
    await jobs.add("count_once", {"file": str(file)})
    quick = {"heartbeat_interval": 0.5, "recovery_grace": 3.0, "sweep_interval": 0.5}
    environment = {f"GRAPHILE_WORKER_{name.upper()}": str(value) for name, value in quick.items()}
    worker = WorkerProcess(
        [sys.executable, "-m", "graphile_worker", "--tasks", "executors.heavy_tasks", "-j", "1"],
        folder=Path(__file__).parents[1],
        environment=clean_environment(DATABASE_URL=database_url, **environment),
    )
    try:
        await until(lambda: bool(lines(file)))
        pid = int(lines(file)[0])
        os.kill(worker.process.pid, signal.SIGKILL)
        try:
            await until(lambda: not _is_alive(pid))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    finally:
        worker.close()
    assert (await jobs.one())["locked_by"] is not None
    await workers.start([tasks.count_once], **quick)
    await jobs.until_gone()
    assert lines(file)[1:] == ["elsewhere"]


async def test_a_running_job_shows_its_progress_and_its_stack(
    database_url: str, jobs: Jobs, workers: Workers, file: Path
) -> None:
    await workers.start(tasks.all_tasks(), concurrency=3, executors={"process.processes": 3})
    async with make_worker_utils(connection_string=database_url) as utils:
        waits = await utils.add_job("wait_until_told", {"file": str(file)})
        sleeps = await utils.add_job("sleep_until_told", {"file": str(file)})
        counts = await utils.add_job("count_for_ever", {"file": str(file)}, flags=["py:timeout=3600"])
        await until(lambda: len(lines(file)) == 3)
        async with asyncio.timeout(PATIENCE):
            async for progress in utils.jobs.watch(waits.id):
                assert (progress.share, progress.note) == (0.25, "a quarter")
                break
        waiting = await utils.jobs.get_stack(waits.id, timeout=PATIENCE)
        assert waiting.kind == "coroutine"
        assert "await helpers.abort_signal.wait()" in waiting.stack
        assert "heavy_tasks.py" in waiting.stack.split("\n")[0], waiting.stack
        sleeping = await utils.jobs.get_stack(sleeps.id, timeout=PATIENCE)
        assert sleeping.kind == "thread"
        assert "heavy_tasks.py" in sleeping.stack.split("\n")[0], sleeping.stack
        assert "in sleep_until_told" in sleeping.stack
        assert (sleeping.place or "").startswith("process ")
        # C code that keeps the interpreter to itself keeps its process from answering.
        counting = await utils.jobs.get_stack(counts.id, timeout=PATIENCE)
        assert "no answer" in counting.stack
        for job in (waits, sleeps, counts):
            await utils.jobs.cancel(job.id)
        await jobs.until_gone()


async def test_task_files_run_in_processes(jobs: Jobs, workers: Workers, file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tasks"
    (folder / "report").mkdir(parents=True)
    (folder / "report" / "_texts.py").write_text('HELLO = "hello"\n')
    (folder / "report" / "monthly.py").write_text(
        "import os\n"
        "from pathlib import Path\n"
        "from graphile_worker import task\n"
        "from ._texts import HELLO\n"
        '@task(executor="process")\n'
        "def monthly(payload: dict[str, str]) -> None:\n"
        '    Path(payload["file"]).write_text(f"{HELLO} {os.getpid()}")\n'
    )
    await jobs.add("report/monthly", {"file": str(file)})
    await workers.once(None, task_directory=str(folder))
    hello, pid = file.read_text().split()
    assert hello == "hello"
    assert int(pid) != os.getpid()


async def test_processes_that_cannot_start_fail_their_jobs(
    jobs: Jobs, workers: Workers, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await jobs.add("note", {"n": 1, "file": str(file)})
    executor = ProcessExecutor(1, initializer="executors.heavy_tasks:missing")
    await workers.once([tasks.note], executors={"process": executor})
    assert "no process for the task could be started" in headline(await jobs.one())
    assert "has no attribute 'missing'" in headline(await jobs.one())


def _in_a_function() -> Any:
    @task(executor="process")
    def inner(payload: dict[str, Any]) -> None: ...

    return inner


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (_in_a_function(), "'inner' cannot run.*it is defined inside the function _in_a_function"),
        (task("short", executor="process")(lambda payload: None), "'short' cannot run.*it is a lambda"),
        (task("far", executor="cluster")(tasks.note.function), "the executor 'cluster'.*it has: process"),
    ],
)
async def test_tasks_that_no_process_could_find_stop_the_start(
    database_url: str, made: Any, message: str
) -> None:
    with pytest.raises(TaskLoadError, match=message):
        await run(connection_string=database_url, task_list=[made])


@pytest.mark.parametrize(
    ("executors", "message"),
    [
        ({"process": {"speed": 3}}, "process has no setting 'speed'; known settings: processes, max_jobs"),
        ({"process.processes": 0}, "process: processes: expected a whole number of at least 1, got 0"),
        ({"process": 4}, "expected an executor or its settings, got 4"),
        ({"cluster.kind": "abacus"}, "kind: expected one of process, dask, ray, or package.module:Class"),
    ],
)
async def test_wrong_settings_stop_the_start(
    database_url: str, executors: dict[str, Any], message: str
) -> None:
    found = task("note", executor=next(iter(executors)).partition(".")[0])(tasks.note.function)
    with pytest.raises(ConfigError, match=message):
        await run(connection_string=database_url, task_list=[found], executors=executors)


def test_the_pace_of_a_task_follows_slow_runs_faster_than_fast_ones() -> None:
    pace = ProcessPace()
    assert pace.expected("a") == UNKNOWN
    pace.ran("a", 0.0)
    for _ in range(3):
        pace.ran("a", 1.0)
    slow = pace.expected("a")
    assert slow > 0.5
    pace.ran("a", 0.0)
    assert pace.expected("a") > 0.8 * slow


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:  # no /proc, or gone by now
        return not Path("/proc/self").exists()
