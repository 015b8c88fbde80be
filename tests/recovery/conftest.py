"""Workers that die, hang and come back: as processes, and as rows of workers that are dead already."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from graphile_worker import make_worker_utils
from graphile_worker.client import WorkerUtils
from recovery.dead import Graveyard
from recovery.history import History
from support.worker_process import Start, starting


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where worker processes are started."""
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    """`start("-j", 2, url=…, tasks=TASKS, **QUICK)`: a worker process; killed at the end if it still runs."""
    with starting(folder) as start:
        yield start


@pytest.fixture
async def utils(database_url: str) -> AsyncIterator[WorkerUtils]:
    async with make_worker_utils(connection_string=database_url) as utils:
        yield utils


@pytest.fixture
def graveyard(connection: Any) -> Graveyard:
    return Graveyard(connection)


@pytest.fixture
async def history(connection: Any) -> History:
    """What the jobs of worker processes note about themselves, outside the queue."""
    return await History(connection).made()
