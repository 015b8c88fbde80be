"""Fixtures for applications: an empty current directory, and commands that run in it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.running import Run, running_in
from support.command_line import Call, clean_environment, in_this_process


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current directory; what is imported from it is forgotten at the end."""
    for name in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and Path(file).is_relative_to(tmp_path):
            del sys.modules[name]


@pytest.fixture
def run(place: Path, database_url: str) -> Iterator[Run]:
    """Commands that are stopped before the database is dropped."""
    with running_in(place) as run:
        yield run


@pytest.fixture
def call(
    place: Path, database_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Call:
    """The command in this process, with the database of the test."""
    monkeypatch.setenv("DATABASE_URL", database_url)
    return in_this_process(capsys, monkeypatch)
