"""Fixtures of the tests of wide queues: a client, and workers in each mode."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from graphile_worker import WorkerUtils, make_worker_utils
from support.working import MODES, Workers, workers_of


@pytest.fixture
async def utils(database_url: str) -> AsyncIterator[WorkerUtils]:
    async with make_worker_utils(connection_string=database_url) as utils:
        yield utils


@pytest.fixture(params=MODES)
async def any_workers(request: pytest.FixtureRequest, database_url: str) -> AsyncIterator[Workers]:
    """Workers in each mode, for what depends on how jobs are fetched or written; else use `workers`."""
    async for workers in workers_of(database_url, MODES[request.param]):
        yield workers
