"""Workers as processes of their own, and inside the test where that is enough."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.worker_process import Start, starting


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the workers are started, and where their jobs leave notes."""
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    """`start("-j", 2, url=database_url)`: a worker process; killed at the end if it still runs."""
    with starting(folder) as start:
        yield start
