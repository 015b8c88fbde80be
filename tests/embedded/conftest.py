"""Folders and processes for servers of a test's own; everything started here is ended here."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from embedded.asking import Embed, Participate
from embedded.participant import FAST, Participant
from graphile_worker.database.embedded import EmbeddedPostgres


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short temporary folder that every user may pass through; removed afterwards."""
    path = Path(tempfile.mkdtemp(prefix="gw-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def embed(folder: Path) -> Iterator[Embed]:
    """Makes `EmbeddedPostgres` objects with quick settings and stops them at the end."""
    made: list[EmbeddedPostgres] = []

    def make(data_dir: Path | None = None, **options: object) -> EmbeddedPostgres:
        options.setdefault("settings", FAST)
        server = EmbeddedPostgres(data_dir or folder / "data", **options)  # type: ignore[arg-type]
        made.append(server)
        return server

    yield make
    for server in made:
        server.stop()
    for server in made:
        server.stop_if_unused()


@pytest.fixture
def participate(folder: Path) -> Iterator[Participate]:
    """Starts processes that share the server in `folder / "data"`; ends those that still run."""
    started: list[Participant] = []

    def start(*options: str, data_dir: Path | None = None, **more: object) -> Participant:
        participant = Participant(data_dir or folder / "data", *options, **more)  # type: ignore[arg-type]
        started.append(participant)
        return participant

    yield start
    for participant in started:
        if participant.process.returncode is None:
            participant.close()
    EmbeddedPostgres(folder / "data").stop_if_unused()
