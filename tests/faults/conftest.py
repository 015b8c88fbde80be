"""Workers inside the test's own process, and what they say in the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from faults.scene import Log, Ran, own_server
from graphile_worker.database.embedded import EmbeddedPostgres


@pytest.fixture(scope="session")
def broken_server() -> Iterator[EmbeddedPostgres]:
    """A server that tests may stop and break, over TCP; each of them leaves it running."""
    with own_server(port=0) as server:
        yield server


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Log:
    """The lines that a user sees with the default settings."""
    caplog.set_level(logging.INFO, logger="graphile_worker")
    return Log(caplog)


@pytest.fixture
def ran() -> Ran:
    return Ran()
