"""Every test of this folder runs once per mode: default, direct, local queue with batch delays."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from support.working import MODES, Workers, workers_of


@pytest.fixture(params=list(MODES))
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def workers(database_url: str, mode: str) -> AsyncIterator[Workers]:
    async for workers in workers_of(database_url, MODES[mode]):
        yield workers
