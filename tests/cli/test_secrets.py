"""Passwords never appear in configuration, errors, logs, findings or process lists."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

from cli.guarded import ODD_PASSWORD, GuardedServer
from cli.running import Run, running_in
from support.cases import looped
from support.command_line import Call, Result

WRITTEN = [
    ODD_PASSWORD,
    quote(ODD_PASSWORD),
    quote(ODD_PASSWORD, safe=""),
    quote_plus(ODD_PASSWORD),
    ODD_PASSWORD.replace("\\", "\\\\").replace("'", "\\'"),
    "s3cret",
]
"""The spellings of the password, and its first letters, which occur in no message otherwise."""


def hides(result: Result | str) -> str:
    """The whole output, which does not contain the password."""
    said = result if isinstance(result, str) else result.out + result.err
    assert said
    for form in WRITTEN:
        assert form not in said, said
    return said


@pytest.fixture(params=["url", "pairs", "pass file"])
def string(request: pytest.FixtureRequest, guarded: GuardedServer, tmp_path: Path) -> str:
    """A connection string for the role with the odd password, in each notation."""
    if request.param == "url":
        return guarded.url()
    return guarded.pairs() if request.param == "pairs" else guarded.pass_file(tmp_path / "passwords")


@pytest.fixture
def tasks(place: Path) -> Path:
    (place / "tasks").mkdir()
    (place / "tasks" / "hello.py").write_text("def hello(payload):\n    raise ValueError('no')\n")
    return place / "tasks"


@pytest.mark.usefixtures("tasks")
def test_it_works_and_is_not_said(call: Call, spawn: Call, string: str) -> None:
    call("migrate", DATABASE_URL=string).check()
    for arguments in (["config"], ["config", "--json"], ["doctor"], ["doctor", "--json"], ["stats"]):
        hides(call(*arguments, DATABASE_URL=string).check())
    call("add", "hello", DATABASE_URL=string).check()
    said = hides(spawn("--once", "--log-level", "debug", DATABASE_URL=string).check())
    assert "Traceback" in said  # of the failed task; even that does not show it


@pytest.mark.parametrize("database", ["nowhere", "postgres"])
def test_it_is_not_said_when_it_is_refused(call: Call, guarded: GuardedServer, database: str) -> None:
    right = database == "nowhere"  # either the password or the database is wrong
    url = guarded.url(ODD_PASSWORD if right else f"{ODD_PASSWORD}!", database=database)
    for arguments in (["list"], ["--log-level", "debug", "list"], ["doctor"], ["--schema-only"]):
        result = call(*arguments, DATABASE_URL=url)
        assert result.status == 1
        hides(result)


@looped(
    "string",
    [
        "postgres://me:s3cret@127.0.0.1:1/db",
        "postgres://me:s3cret/@127.0.0.1:1/db",
        "postgres://me:p@s3cret?x#y@127.0.0.1:1/db",
        "postgres://me:p%ZZs3cret@127.0.0.1:port/db",
        "postgres://127.0.0.1:1/db?user=me&password=s3cret",
        "host=127.0.0.1 port=1 password='s3cret",
        "host=127.0.0.1 port=1 password=s3cret user=me",
        "mysql://me:s3cret@127.0.0.1/db",
        "me:s3cret@127.0.0.1/db",
    ],
)
def test_it_is_not_said_whatever_is_wrong_with_the_string(call: Call, place: Path, string: str) -> None:
    (place / "graphile_worker.toml").write_text(f'connection_string = """{string}"""\n')
    for arguments in (["--log-level", "debug", "list"], ["doctor"], ["config"]):
        result = call(*arguments)
        assert result.status == (0 if arguments == ["config"] else 1)
        hides(result)


@pytest.fixture
def run(place: Path, tasks: Path) -> Iterator[Run]:
    with running_in(place) as run:
        yield run


@pytest.mark.parametrize("command", [["--watch"], ["dev", "--plain", "-c"], ["dev", "--json", "-c"], []])
def test_a_running_worker_does_not_show_it(run: Run, guarded: GuardedServer, command: list[str]) -> None:
    url = guarded.url()
    is_flag = command[-1:] == ["-c"]
    arguments = [*command, url] if is_flag else command
    process = run(*arguments, **({} if is_flag else {"DATABASE_URL": url})).wait_for("ready: ")
    for pid in processes_below(process.pid):
        line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        if pid != process.pid or not is_flag:  # a flag that the user typed is visible
            hides(line)
    process.send(signal.SIGTERM)
    process.ended()
    hides(process.output)


def processes_below(pid: int) -> list[int]:
    """The process and all its descendants."""
    found = [pid]
    for parent in found:
        for thread in os.listdir(f"/proc/{parent}/task"):
            found += map(int, Path(f"/proc/{parent}/task/{thread}/children").read_text().split())
    return found
