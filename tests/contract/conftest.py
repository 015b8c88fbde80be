"""Every test of this folder runs once per mode: default, direct, local queue with batch delays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from graphile_worker.testing.recorder import EventRecorder
from support.working import MODES, Jobs, Workers, workers_of


@pytest.fixture(params=list(MODES))
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def workers(database_url: str, mode: str) -> AsyncIterator[Workers]:
    async for workers in workers_of(database_url, MODES[mode]):
        yield workers


@pytest.fixture
def jobs(connection: Any) -> Jobs:
    return Jobs(connection)


@pytest.fixture
async def recorder() -> EventRecorder:
    return EventRecorder()
