"""Fixtures of the tests of held batches."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from graphile_worker import WorkerUtils, make_worker_utils
from graphile_worker.testing.results import EventRecorder
from support.held_load import Holding, never_slow
from support.holding import HoldingWorker
from support.working import Jobs, Workers


@pytest.fixture
async def utils(database_url: str) -> AsyncIterator[WorkerUtils]:
    async with make_worker_utils(connection_string=database_url) as utils:
        yield utils


@pytest.fixture
def holding(
    monkeypatch: pytest.MonkeyPatch, workers: Workers, jobs: Jobs, recorder: EventRecorder
) -> HoldingWorker:
    never_slow(monkeypatch)
    return HoldingWorker(Holding(jobs, workers, recorder))
