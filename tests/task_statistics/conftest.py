"""Worker processes, a client, and the tables with statistics."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from graphile_worker import make_worker_utils
from graphile_worker.client import WorkerUtils
from support.worker_process import Start, starting
from task_statistics.tables import Tables


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where worker processes are started."""
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    """`start("-j", 2, url=…, tasks=TASKS)`: a worker process; killed at the end if it still runs."""
    with starting(folder) as start:
        yield start


@pytest.fixture
async def utils(database_url: str) -> AsyncIterator[WorkerUtils]:
    async with make_worker_utils(connection_string=database_url) as utils:
        yield utils


@pytest.fixture
def tables(connection: Any) -> Tables:
    return Tables(connection)
