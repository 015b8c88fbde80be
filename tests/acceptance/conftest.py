"""Workers as processes of their own, and inside the test where that is enough."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from acceptance.worker_process import Start, starting
from graphile_worker.testing.recorder import EventRecorder
from support.working import Jobs, Workers, workers_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the workers are started, and where their jobs leave notes."""
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    """`start("-j", 2, url=database_url)`: a worker process; killed at the end if it still runs."""
    with starting(folder) as start:
        yield start


@pytest.fixture
def jobs(connection: Any) -> Jobs:
    return Jobs(connection)


@pytest.fixture
async def workers(database_url: str) -> AsyncIterator[Workers]:
    """Workers inside the test's own process."""
    async for workers in workers_of(database_url):
        yield workers


@pytest.fixture
async def recorder() -> EventRecorder:
    return EventRecorder()
