"""What tests of the worker share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from graphile_worker import WorkerUtils, make_worker_utils
from graphile_worker.testing.results import EventRecorder
from support import held_load
from support.held_load import Holding
from support.working import Gate, Jobs, Workers


@pytest.fixture
async def utils(database_url: str) -> AsyncIterator[WorkerUtils]:
    """A client of the test's own database."""
    async with make_worker_utils(connection_string=database_url) as utils:
        yield utils


@pytest.fixture
def never_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """See `held_load.never_slow`."""
    held_load.never_slow(monkeypatch)


@pytest.fixture
def holding(never_slow: None, jobs: Jobs, workers: Workers, recorder: EventRecorder) -> Holding:
    return Holding(jobs, workers, recorder)


@pytest.fixture
def gate() -> Gate:
    return Gate()
