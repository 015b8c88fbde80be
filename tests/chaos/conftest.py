"""A server for the tests of this folder only, because they stop and start it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chaos.server import ChaosServer, chaos_server


@pytest.fixture(scope="session")
def chaos() -> Iterator[ChaosServer]:
    with chaos_server() as server:
        yield server
