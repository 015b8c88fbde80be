"""Progress bars: only on a terminal and only for long work."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli.terminal import Terminal
from graphile_worker.cli.support.bulk_input import CHUNK, LONG
from graphile_worker.database.statements.cleanup import DELETE_BATCH
from support.command_line import COMMAND, clean_environment
from support.server import DatabaseServer

JOBS = 2 * CHUNK + 1
FAILED = DELETE_BATCH + 1
BENCH = ["bench", "--jobs", "10", "--processes", "1"]


@pytest.fixture
def jobs_file(place: Path) -> Path:
    """A file that is long enough for a bar."""
    path = place / "jobs.jsonl"
    line = json.dumps({"task": "import_row", "payload": {"text": "ü" * (LONG // JOBS)}}, ensure_ascii=False)
    path.write_text(f"{line}\n" * JOBS, encoding="utf-8")
    return path


@pytest.fixture
def failed_jobs(server: DatabaseServer, database_url: str) -> None:
    """Enough permanently failed jobs to be deleted by more than one statement."""
    server.run(
        database_url,
        lambda connection: connection.execute(
            "select graphile_worker.add_jobs(array(select json_populate_record("
            'null::graphile_worker.job_spec, \'{"identifier": "gone", "max_attempts": 1}\') '
            f"from generate_series(1, {FAILED})));"
            "update graphile_worker._private_jobs set attempts = max_attempts"
        ),
    )


Show = Callable[..., tuple[str, str]]
"""`show("add", …)`: what the terminal showed, and the content of standard output, a file."""


@pytest.fixture
def show(place: Path, database_url: str) -> Iterator[Show]:
    started: list[Terminal] = []

    def run(*arguments: object) -> tuple[str, str]:
        with (place / "out").open("w+") as out:
            terminal = Terminal(
                [*COMMAND, *map(str, arguments)],
                clean_environment(DATABASE_URL=database_url),
                place,
                columns=80,
                stdout=out.fileno(),
            )
            started.append(terminal)
            assert terminal.wait() == 0, terminal.screen.text
            assert terminal.screen.wrapped == []
            assert terminal.screen.text.strip() == ""  # the bar is gone
            out.seek(0)
            return terminal.seen, out.read()

    yield run
    for terminal in started:
        terminal.close()


def without_a_terminal(url: str, place: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], cwd=place, env=clean_environment(DATABASE_URL=url),
        capture_output=True, text=True, timeout=120, check=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_adding_a_large_file(show: Show, jobs_file: Path, database_url: str, place: Path) -> None:
    seen, out = show("add", "--from", jobs_file, "--json")
    assert "adding jobs" in seen
    assert f"{CHUNK:,} jobs" in seen
    assert "100%" in seen
    assert json.loads(out) == {"added": JOBS}
    done = without_a_terminal(database_url, place, "add", "--from", jobs_file)
    assert (done.stdout, done.stderr) == (f"Added {JOBS:,} jobs.\n", "")


def test_a_small_file_needs_no_bar(show: Show, place: Path) -> None:
    (place / "small.jsonl").write_text('{"task": "hello"}\n' * 10)
    seen, out = show("add", "--from", "small.jsonl")
    assert seen == ""
    assert out == "Added 10 jobs.\n"


@pytest.mark.usefixtures("failed_jobs")
def test_deleting_many_jobs(show: Show) -> None:
    seen, out = show("cleanup", "DELETE_PERMAFAILED_JOBS", "--json")
    assert "deleting failed jobs" in seen
    assert f"{DELETE_BATCH:,} jobs" in seen
    assert json.loads(out)["permafailed_jobs"] == FAILED
    assert show("cleanup", "DELETE_PERMAFAILED_JOBS")[0] == ""


@pytest.mark.usefixtures("failed_jobs")
def test_deleting_many_jobs_without_a_terminal(database_url: str, place: Path) -> None:
    done = without_a_terminal(database_url, place, "--cleanup", "DELETE_PERMAFAILED_JOBS")
    assert (done.stdout, done.stderr) == (f"Deleted {FAILED:,} permanently failed jobs.\n", "")


def test_measuring(show: Show, database_url: str, place: Path) -> None:
    seen, out = show(*BENCH, "--json")
    assert "━" in seen
    assert json.loads(out)
    done = without_a_terminal(database_url, place, *BENCH, "--json")
    assert json.loads(done.stdout)
    assert done.stderr == ""
