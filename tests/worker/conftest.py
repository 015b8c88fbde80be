"""Workers in their default mode unless a test says otherwise."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from graphile_worker.testing.recorder import EventRecorder
from support.working import Jobs, Workers, workers_of


@pytest.fixture
async def workers(database_url: str) -> AsyncIterator[Workers]:
    async for workers in workers_of(database_url):
        yield workers


@pytest.fixture
def jobs(connection: Any) -> Jobs:
    return Jobs(connection)


@pytest.fixture
async def recorder() -> EventRecorder:
    return EventRecorder()
