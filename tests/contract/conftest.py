"""Tests of this folder run in every mode of a worker: default, direct, local queue with batch delays.

What the executor decides by itself is tested without a worker, in `tests/worker/test_executor.py` and
`test_around.py`; one test for each subject shows here that a worker of every mode does the same. Tests marked
with `IN_ONE_MODE` are about what no mode can change, such as the slots and the statements.
"""

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
