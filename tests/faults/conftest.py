"""Workers inside the test's own process, and what they say in the log."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from faults.scene import Log, Ran, own_server
from graphile_worker.embedded import EmbeddedPostgres
from graphile_worker.testing.recorder import EventRecorder
from support.working import Jobs, Workers, workers_of


@pytest.fixture(scope="session")
def broken_server() -> Iterator[EmbeddedPostgres]:
    """A server that tests may stop and break, over TCP; each of them leaves it running."""
    with own_server(port=0) as server:
        yield server


@pytest.fixture
def jobs(connection: Any) -> Jobs:
    return Jobs(connection)


@pytest.fixture
async def workers(database_url: str) -> AsyncIterator[Workers]:
    async for workers in workers_of(database_url):
        yield workers


@pytest.fixture
async def recorder() -> EventRecorder:
    return EventRecorder()


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Log:
    """The lines that a user sees with the default settings."""
    caplog.set_level(logging.INFO, logger="graphile_worker")
    return Log(caplog)


@pytest.fixture
def ran() -> Ran:
    return Ran()
