"""Processes that tasks start end with their job: when it is ended early, and when its worker is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from executors import tree_tasks as tasks
from executors.trees import EXECUTABLE, is_alive, pids
from graphile_worker import make_worker_utils
from graphile_worker.executors import ProcessExecutor
from graphile_worker.tasks.executables import process_group
from graphile_worker.tasks.executables.process_group import guard, members
from support.command_line import clean_environment
from support.programs import needed
from support.worker_process import WorkerProcess
from support.working import Jobs, Workers, headline, until

QUICK = {"heartbeat_interval": 0.5, "recovery_grace": 3.0, "sweep_interval": 0.5}
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "sleeping in a process": ("plant", {}),
    "in C code in a process": ("plant", {"counts": True}),
    "awaiting in a process": ("plant_and_wait", {}),
    "executable": ("tree", {}),
}
"""Jobs that start processes; each has a folder for what it notes."""


def end_all(file: Path) -> None:
    for line in file.read_text().split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(line), signal.SIGKILL)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "pids"
    path.touch()
    yield path
    end_all(path)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[dict[str, Path]]:
    """A file for each of `WAYS`."""
    files = {way: tmp_path / way / "pids" for way in WAYS}
    for file in files.values():
        file.parent.mkdir()
        file.touch()
    yield files
    for file in files.values():
        end_all(file)


async def add_all(jobs: Jobs, files: dict[str, Path], **options: Any) -> list[int]:
    """A job for each of `WAYS`; their ids."""
    return [
        await jobs.add(identifier, {"file": str(files[way]), **payload}, **options)
        for way, (identifier, payload) in WAYS.items()
    ]


async def until_all_are_planted(files: dict[str, Path]) -> None:
    await until(lambda: all(pids(file) for file in files.values()))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of tasks: those in processes, and an executable."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    for name in ("plant", "plant_and_wait"):
        (folder / f"{name}.py").write_text(f"from executors.tree_tasks import {name}\n")
    executable = folder / "tree"
    executable.write_text(EXECUTABLE)
    executable.chmod(0o755)
    return folder


async def until_all_are_gone(processes: list[int]) -> None:
    await until(lambda: not any(is_alive(pid) for pid in processes))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_nothing_outlives_its_worker_and_the_job_runs_elsewhere(
    database_url: str,
    jobs: Jobs,
    workers: Workers,
    files: dict[str, Path],
    folder: Path,
    number: signal.Signals,
) -> None:
    await add_all(jobs, files)
    settings = {f"GRAPHILE_WORKER_{name.upper()}": str(value) for name, value in QUICK.items()}
    worker = WorkerProcess(
        [
            *(sys.executable, "-m", "graphile_worker", "--tasks", str(folder), "-j", str(len(WAYS))),
            *("--executor", f"process.processes={len(WAYS)}"),
        ],
        folder=folder.parent,
        environment=clean_environment(
            DATABASE_URL=database_url,
            GRAPHILE_WORKER_GRACE="0.2",
            PYTHONPATH=str(Path(__file__).parents[1]),
            **settings,
        ),
    )
    try:
        await until_all_are_planted(files)
        worker.send(number)
        for file in files.values():
            await until_all_are_gone(pids(file))
        worker.ended()
    finally:
        worker.close()
    await workers.start(None, task_directory=str(folder), concurrency=len(WAYS), **QUICK)
    await jobs.until_gone()
    for file in files.values():
        assert file.with_name("second").read_text() == "beside []"


@pytest.mark.parametrize("cause", ["cancel", "timeout", "stop"])
async def test_a_job_that_is_ended_early_leaves_nothing(
    database_url: str,
    jobs: Jobs,
    workers: Workers,
    files: dict[str, Path],
    folder: Path,
    cause: str,
) -> None:
    flags = ["py:timeout=6"] if cause == "timeout" else None
    ids = await add_all(jobs, files, flags=flags, max_attempts=1)
    runner = await workers.start(
        None,
        task_directory=str(folder),
        concurrency=len(WAYS),
        grace=0.2,
        executors={"process": ProcessExecutor(len(WAYS), kill_after=2)},
    )
    await until_all_are_planted(files)
    if cause == "stop":
        await workers.stop(runner)
    else:
        if cause == "cancel":
            async with make_worker_utils(connection_string=database_url) as utils:
                await utils.cancel_jobs(ids)

        async def has_ended() -> bool:
            return all(row["locked_by"] is None for row in await jobs.all())

        await until(has_ended)
    for file in files.values():
        await until_all_are_gone(pids(file)[:2])


async def test_a_crash_leaves_nothing(jobs: Jobs, workers: Workers, file: Path) -> None:
    await jobs.add("plant", {"file": str(file), "crashes": True}, max_attempts=1)
    await workers.once([tasks.plant])
    assert "exited with status 7" in headline(await jobs.one())
    await until_all_are_gone(pids(file))


async def test_what_a_job_leaves_behind_ends_with_the_executor(
    jobs: Jobs, workers: Workers, file: Path
) -> None:
    await jobs.add("plant", {"file": str(file), "returns": True})
    runner = await workers.start([tasks.plant])
    await jobs.until_gone()
    assert all(is_alive(pid) for pid in pids(file))
    await workers.stop(runner)
    await until_all_are_gone(pids(file))


async def test_a_process_without_company_survives_the_early_end_of_its_job(
    jobs: Jobs, workers: Workers, file: Path
) -> None:
    await jobs.add("say_who", {"file": str(file), "sleeps": True}, flags=["py:timeout=0.3"], max_attempts=1)
    await workers.start([tasks.say_who], executors={"process": ProcessExecutor(1, kill_after=60)})

    async def has_failed() -> bool:
        return (await jobs.one())["locked_by"] is None and (await jobs.one())["last_error"] is not None

    await until(has_failed)
    await jobs.add("say_who", {"file": str(file)})
    await until(lambda: len(file.read_text().split()) == 2)
    first, second = file.read_text().split()
    assert first == second


# -- the guard ---------------------------------------------------------------------------------------------

PROGRAM = """
import os, signal, subprocess, sys, time
from graphile_worker.tasks.executables.process_group import guard

def start():
    process = subprocess.Popen(["sleep", "3600"], start_new_session=True)
    guard.watch(process.pid)
    return process.pid

first, free = start(), start()
guard.forget(free)
match sys.argv[1]:
    case "killed":
        guard._process.kill()
        guard._process.wait()
    case "suspended":
        guard._process.send_signal(signal.SIGSTOP)
        while guard._send("- 0\\n"):
            pass
    case "forked":
        forked = os.fork()
        if forked == 0:
            time.sleep(3600)
        free = forked
print(first, start(), free, flush=True)
time.sleep(3600)
"""


@pytest.mark.parametrize("case", ["undisturbed", "killed", "suspended", "forked"])
async def test_a_guard_ends_what_it_was_told_and_is_replaced(case: str) -> None:
    """One that is suspended is replaced when it can be told nothing more; a fork keeps no end open."""
    program = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, case], stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    started = [int(word) for word in program.stdout.readline().split()]
    *watched, free = started
    try:
        assert all(is_alive(pid) for pid in started)
        program.kill()
        program.wait()
        await until_all_are_gone(watched)
        assert is_alive(free)
    finally:
        program.stdout.close()
        for pid in started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def guard_process() -> subprocess.Popen[bytes] | None:
    return guard._process


async def test_a_worker_without_children_has_no_guard(jobs: Jobs, workers: Workers, file: Path) -> None:
    assert guard_process() is None
    await jobs.add("say_who", {"file": str(file)})
    runner = await workers.start([tasks.say_who])
    await jobs.until_gone()
    process = guard_process()
    assert process is not None
    assert is_alive(process.pid)
    await workers.stop(runner)
    assert guard_process() is None
    assert not is_alive(process.pid)


def test_the_members_of_a_group_are_the_same_without_proc() -> None:
    needed("ps")
    leader = subprocess.Popen(
        ["/bin/sh", "-c", "sleep 3600 & echo $!; wait"], stdout=subprocess.PIPE, start_new_session=True
    )
    assert leader.stdout is not None
    both = {leader.pid, int(leader.stdout.readline())}
    try:
        assert set(members(leader.pid)) == set(process_group._members_by_ps(leader.pid)) == both
    finally:
        os.killpg(leader.pid, signal.SIGKILL)
        leader.wait()
        leader.stdout.close()
