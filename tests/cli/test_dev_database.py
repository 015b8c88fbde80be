"""Commands without a database, in a directory where `graphile-worker dev` runs: they use its database."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.running import Run, running_in
from support.cases import looped
from support.command_line import Call, clean_environment
from support.worker_process import WorkerProcess

ANNOUNCEMENT = (
    "graphile-worker: no database given; using the one of `graphile-worker dev` in this directory\n"
)
NO_SERVER = "postgres://127.0.0.1:1/db"
HELLO = "def hello(payload):\n    print('Hello, ' + payload['name'], flush=True)\n"


@pytest.fixture(scope="module")
def project() -> Iterator[Path]:
    """A project in which `dev` is running."""
    directory = Path(tempfile.mkdtemp(prefix="graphile-worker-dev-"))
    directory.chmod(0o711)  # the server of root runs as another user, who needs access
    (directory / "tasks").mkdir()
    (directory / "tasks" / "hello.py").write_text(HELLO)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module")
def run(project: Path) -> Iterator[Run]:
    with running_in(project) as run:
        yield run


@pytest.fixture(scope="module")
def dev(run: Run) -> WorkerProcess:
    return run("dev").ready()


@pytest.fixture
def command(project: Path, dev: WorkerProcess, call: Call, monkeypatch: pytest.MonkeyPatch) -> Call:
    """`command("list", DATABASE_URL=…)`: a command in the project's directory."""
    monkeypatch.chdir(project)
    return call


def test_a_program_that_serves_uses_it_too(command: Call, project: Path) -> None:
    command("add", "greet").check()
    (project / "worker.py").write_text(
        "from graphile_worker import serve\n"
        "serve(task_list={'greet': lambda: print('greeted', flush=True)}, once=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "worker.py"],
        env=clean_environment(), cwd=project, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ANNOUNCEMENT)
    assert "greeted" in done.stdout


@looped(
    "arguments",
    [
        ["list"],
        ["stats"],
        ["workers", "--json"],
        ["migrate"],
        ["cleanup", "GC_JOB_QUEUES"],
        ["doctor"],
        ["--schema-only"],
        ["--once"],
        ["--cleanup", "GC_JOB_QUEUES"],
    ],
)
def test_every_command_uses_it_and_says_so_in_one_line(command: Call, arguments: list[str]) -> None:
    assert command(*arguments).check().err == ANNOUNCEMENT


def test_an_added_job_is_run_by_the_worker_of_dev(command: Call, dev: WorkerProcess) -> None:
    result = command("add", "hello", '{"name": "Ada"}', "--json").check()
    assert result.json["task_identifier"] == "hello"
    assert result.err == ANNOUNCEMENT
    dev.wait_for("Hello, Ada")


@pytest.mark.parametrize("flags", [[], ["--processes", "2"], ["--watch"]])
def test_a_worker_uses_it(run: Run, dev: WorkerProcess, flags: list[str]) -> None:
    worker = run(*flags).ready()
    assert worker.output.count(ANNOUNCEMENT) == 1
    assert "database postgres at socket" in worker.output
    worker.process.terminate()
    assert worker.ended() == 143


def test_a_configured_database_wins(command: Call, project: Path) -> None:
    def refused(*arguments: str, **environment: str) -> str:
        result = command(*arguments, **environment)
        assert result.status == 1
        assert ANNOUNCEMENT not in result.err
        return result.err

    assert "127.0.0.1:1 cannot be reached" in refused("list", "-c", NO_SERVER)
    assert "127.0.0.1:1 cannot be reached" in refused("-c", NO_SERVER, "list")
    assert "127.0.0.1:1 cannot be reached" in refused("list", DATABASE_URL=NO_SERVER)
    assert "127.0.0.1:1 cannot be reached" in refused("list", GRAPHILE_WORKER_CONNECTION_STRING=NO_SERVER)
    assert "127.0.0.1:1 cannot be reached" in refused("list", PGDATABASE="db", PGHOST="127.0.0.1", PGPORT="1")
    config = project / "other.toml"
    config.write_text(f'connection_string = "{NO_SERVER}"\n')
    assert "127.0.0.1:1 cannot be reached" in refused("list", "-C", "other.toml")
    config.unlink()


def test_the_configuration_names_it_as_the_source(command: Call) -> None:
    result = command("config", "--json").check()
    setting = result.json["connection_string"]
    assert setting["source"] == "graphile-worker dev"
    assert setting["value"].startswith("postgresql://postgres@/postgres?host=")
    assert result.err == ""


@looped("arguments", [["migrate", "--sql"], ["complete"], ["crontab", "--help"]])
def test_a_command_that_needs_no_database_says_nothing(command: Call, arguments: list[str]) -> None:
    assert "no database given" not in command(*arguments).err


def test_a_library_call_never_uses_it(command: Call, project: Path) -> None:
    code = (
        "import asyncio\nfrom graphile_worker import make_worker_utils\n"
        "async def main():\n    async with make_worker_utils(): pass\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=clean_environment(), cwd=project, capture_output=True, text=True
    )
    assert "NoDatabaseError" in done.stderr


def test_other_directories_do_not_use_it(
    command: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = command("list")
    assert result.status == 1
    assert "no database was given" in result.err
    assert "hint: to try it without a server, run `graphile-worker dev`" in result.err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")
def test_a_directory_of_another_user_is_not_trusted(command: Call, project: Path) -> None:
    data = project / ".graphile-worker"
    os.chown(data, 65534, -1)
    try:
        assert "no database was given" in command("list").err
    finally:
        os.chown(data, 0, -1)


def test_when_dev_has_ended_there_is_no_database(command: Call, dev: WorkerProcess) -> None:
    """The last test of this file, because it stops `dev`."""
    dev.process.terminate()
    assert dev.ended() == 143
    assert "no database was given" in command("list").err
