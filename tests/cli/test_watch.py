"""`graphile-worker --watch`: the latest code runs, and broken code is reported."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.running import Run, command_without, running_in
from graphile_worker.runner.process.watch import WatchedFiles, changed_files
from support.command_line import Call, clean_environment
from support.working import Jobs, until

TASK = (
    "from {place}tools import greeting\n\n\ndef hello(payload, helpers):\n    print(greeting(), flush=True)\n"
)


@pytest.fixture
def run(place: Path, database_url: str) -> Iterator[Run]:
    """Commands that are stopped before the database is dropped."""
    with running_in(place) as run:
        yield run


@pytest.fixture
def project(place: Path) -> Path:
    """A task that imports a module of the application from outside the task directory."""
    (place / "tasks").mkdir()
    (place / "tasks" / "hello.py").write_text(TASK.format(place=""))
    (place / "tools.py").write_text("def greeting(): return 'one'\n")
    return place


async def test_a_change_of_a_module_that_a_task_imports_restarts_the_worker(
    run: Run, project: Path, database_url: str, jobs: Jobs
) -> None:
    worker = run("--watch", DATABASE_URL=database_url).ready()
    await jobs.add("hello")
    worker.wait_for("one")
    # The same size, and perhaps the same second: Python would take the compiled file for fresh.
    (project / "tools.py").write_text("def greeting(): return 'two'\n")
    worker.wait_for("tools.py changed; restarting the worker").wait_for("ready: ", times=2)
    await jobs.add("hello")
    worker.wait_for("two")
    worker.send(signal.SIGINT)
    assert worker.ended() == 130
    assert await jobs.count() == 0


async def test_code_that_cannot_be_imported_is_shown_and_nothing_runs_until_it_is_mended(
    run: Run, project: Path, database_url: str, jobs: Jobs
) -> None:
    worker = run("-w", DATABASE_URL=database_url).ready()
    (project / "tools.py").write_text("def greeting( return 'broken'\n")
    worker.wait_for("tools.py:1: cannot be imported: SyntaxError")
    worker.wait_for("the worker exited with status 1; waiting for the code to change")
    await jobs.add("hello")
    (project / "tools.py").write_text("import no_such_module\n")
    worker.wait_for("ModuleNotFoundError: No module named 'no_such_module'")
    worker.wait_for("waiting for the code to change", times=2)
    assert await jobs.count() == 1
    (project / "tools.py").write_text("def greeting(): return 'mended'\n")
    worker.wait_for("mended")
    assert "one" not in worker.output.splitlines()


async def test_a_worker_that_is_broken_from_the_start_waits_for_a_change(
    run: Run, project: Path, database_url: str
) -> None:
    (project / "tasks" / "hello.py").write_text("def hello(:\n")
    worker = run("-w", DATABASE_URL=database_url).wait_for("waiting for the code to change")
    (project / "tasks" / "hello.py").write_text("def hello(): pass\n")
    worker.ready()


async def test_a_running_task_may_end_before_the_worker_is_restarted(
    run: Run, project: Path, database_url: str, jobs: Jobs
) -> None:
    (project / "tasks" / "hello.py").write_text(
        "import asyncio, os\n"
        "async def hello():\n"
        "    print('begun', flush=True)\n"
        "    while not os.path.exists('go_on'): await asyncio.sleep(0.01)\n"
        "    print('ended', flush=True)\n"
    )
    worker = run("-w", DATABASE_URL=database_url).ready()
    await jobs.add("hello")
    worker.wait_for("begun")
    (project / "tools.py").write_text("new = True\n")
    worker.wait_for("got SIGTERM")
    (project / "go_on").touch()
    worker.wait_for("ended").wait_for("ready: ", times=2)
    assert await jobs.count() == 0
    assert worker.output.count("begun") == 1


async def test_crontab_configuration_and_new_files_count_too(
    run: Run, project: Path, database_url: str
) -> None:
    worker = run("-w", DATABASE_URL=database_url).ready()
    (project / "crontab").write_text("0 4 * * * hello\n")
    worker.wait_for("1 recurring job,")
    (project / "graphile_worker.toml").write_text("concurrency = 7\n")
    worker.wait_for("7 jobs at a time")
    (project / "tasks" / "inner").mkdir()
    (project / "tasks" / "inner" / "other.py").write_text("def other(): pass\n")
    worker.wait_for("2 tasks (hello, inner/other)")
    (project / "graphile_worker.toml").write_text("concurency = 7\n")
    worker.wait_for("did you mean 'concurrency'?")


async def test_several_processes_are_restarted_together(
    run: Run, project: Path, database_url: str, jobs: Jobs
) -> None:
    worker = run("--watch", "--processes", 2, DATABASE_URL=database_url).wait_for("ready: ", times=2)
    (project / "tools.py").write_text("def greeting(): return 'two'\n")
    worker.wait_for("ready: ", times=4)
    await jobs.add("hello")
    worker.wait_for("two")
    worker.send(signal.SIGTERM)
    assert worker.ended() == 143
    assert "starting another" not in worker.output


@pytest.mark.parametrize("processes", [1, 2])
async def test_the_worker_ends_when_the_parent_is_killed(
    run: Run, project: Path, database_url: str, connection: Any, processes: int
) -> None:
    arguments = ("--processes", processes, "--log-level", "debug")
    worker = run("-w", *arguments, DATABASE_URL=database_url).wait_for("ready: ", times=processes)
    found = re.search(r"started the worker as process (\d+)", worker.output)
    assert found is not None
    worker.process.kill()
    await until(lambda: not _is_alive(int(found[1])), timeout=60)
    worker.wait_for("stopped; all outcomes are written", times=processes)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A zombie still has its process id.
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"


async def test_it_ends_when_its_output_loses_its_reader(
    run: Run, project: Path, database_url: str, jobs: Jobs
) -> None:
    worker = run("-w", DATABASE_URL=database_url).ready()
    worker.close_output()
    await jobs.add("hello")
    assert worker.ended() == 128 + signal.SIGPIPE


def test_a_worker_that_watches_nothing_imports_nothing_of_this(project: Path, database_url: str) -> None:
    code = "import sys\nfrom graphile_worker.cli.main import run_main\nstatus = run_main(['--once'])\n"
    done = subprocess.run(
        [sys.executable, "-c", code + "print(status, *sys.modules)"],
        capture_output=True, text=True, timeout=60, cwd=project,
        env=clean_environment(DATABASE_URL=database_url),
    )  # fmt: skip
    status, *modules = done.stdout.splitlines()[-1].split()
    assert status == "0"
    assert "graphile_worker.runner.process.run_worker" in modules
    heavy = ("rich", "watchfiles", "graphile_worker.database.embedded")
    ours = (
        "graphile_worker.cli.dev",
        "graphile_worker.cli.commands.dev",
        "graphile_worker.runner.process.watch",
    )
    assert [name for name in modules if name.startswith((*heavy, *ours))] == []


def test_without_watchfiles_the_error_names_the_command_that_installs_it(place: Path) -> None:
    for arguments in (["-w"], ["dev"]):
        done = subprocess.run(
            [*command_without("watchfiles"), *arguments],
            capture_output=True, text=True, cwd=place, timeout=60,
            env=clean_environment(DATABASE_URL="postgres://127.0.0.1:1/db"),
        )  # fmt: skip
        assert done.returncode == 1
        assert 'install it with: pip install "graphile-worker[watch]"' in done.stderr


@pytest.mark.parametrize("other", ["--once", "--schema-only"])
def test_watching_is_for_workers_that_stay(call: Call, other: str) -> None:
    result = call("-w", other)
    assert result.status == 2
    assert f"{other} and --watch cannot be combined" in result.err


# -- which files count ---------------------------------------------------------------------------------------


def _touch(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_only_files_that_matter_are_looked_at(place: Path) -> None:
    wanted = [
        _touch(place / "app" / "deep" / "code.py"),
        _touch(place / "tasks" / "sub" / "run.sh"),
        _touch(place / "tasks" / "hello.py"),
        _touch(place / "crontab"),
    ]
    for other in (
        "app/data.txt", ".venv/lib/x.py", "env/lib/x.py", "env/pyvenv.cfg", "node_modules/x.py", ".git/x.py",
        "app/__pycache__/code.pyc", "tasks/.hidden", "tasks/__pycache__/hello.pyc", "tasks/hello.py~",
        ".graphile-worker/cluster/x.py",
    ):  # fmt: skip
        _touch(place / other)
    files = WatchedFiles(root=place, tasks=place / "tasks", others=(place / "crontab", place / "none.toml"))
    assert sorted(files.fingerprint()) == sorted(map(str, wanted))
    below = {os.path.relpath(directory, place) for directory in files.directories()}
    assert below == {".", "app", "app/deep", "tasks", "tasks/sub"}


def test_new_gone_and_different_files_are_changes(place: Path) -> None:
    files = WatchedFiles(root=place, tasks=place / "tasks", others=(place / "crontab",))
    kept, gone, other = (_touch(place / f"{name}.py", "x") for name in ("kept", "gone", "other"))
    before = files.fingerprint()
    gone.unlink()
    other.write_text("xy")
    crontab = _touch(place / "crontab")
    assert changed_files(before, files.fingerprint()) == sorted(map(str, (crontab, gone, other)))
    assert str(kept) in before


def test_tasks_in_a_file_or_outside_of_the_directory_are_watched(place: Path) -> None:
    elsewhere = _touch(place / "there" / "jobs.py")
    root = place / "here"
    root.mkdir()
    assert str(elsewhere) in WatchedFiles(root=root, tasks=elsewhere).fingerprint()
    assert str(elsewhere) in WatchedFiles(root=root, tasks=elsewhere.parent).fingerprint()
    assert str(elsewhere.parent) in WatchedFiles(root=root, tasks=elsewhere).directories()


def test_a_huge_directory_is_not_read_completely(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphile_worker.runner.process.watch.MAX_DIRECTORIES", 10)
    for number in range(30):
        (place / f"directory{number}").mkdir()
    assert len(WatchedFiles(root=place, tasks=place / "tasks").directories()) == 10
