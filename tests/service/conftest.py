"""Fixtures for programs that run a worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.programs import Start, starting_programs


@pytest.fixture
def start(tmp_path: Path, database_url: str) -> Iterator[Start]:
    """Starts Python programs in an empty folder; they are stopped before the database is dropped."""
    with starting_programs(tmp_path) as start:
        yield lambda *arguments, **more: start(*arguments, **{"DATABASE_URL": database_url} | more)
