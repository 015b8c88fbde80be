"""Fixtures that run the command, in this process or as a separate one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.guarded import GuardedServer, guarded_server_in
from support.command_line import COMMAND, Call, Result, clean_environment, in_this_process
from support.modules import modules_unloaded


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current directory and an environment without settings."""
    for name in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    with modules_unloaded(tmp_path):
        yield tmp_path


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """`call("list", "--json", input=…, DATABASE_URL=…)`: the command in this process."""
    return in_this_process(capsys, monkeypatch)


@pytest.fixture
def gw(call: Call, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The same with a new database in which the schema is installed."""
    monkeypatch.setenv("DATABASE_URL", database_url)
    return call


@pytest.fixture
def spawn(place: Path) -> Call:
    """The same as a separate process, which takes a hundred times as long."""

    def run(*arguments: object, input: str = "", **environment: str) -> Result:
        done = subprocess.run(
            [*COMMAND, *map(str, arguments)],
            env=clean_environment(**environment),
            cwd=place,
            input=input,
            capture_output=True,
            text=True,
            timeout=300,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedServer]:
    """A server that requires passwords."""
    with guarded_server_in(tmp_path_factory.mktemp("guarded") / "data") as server:
        yield server
