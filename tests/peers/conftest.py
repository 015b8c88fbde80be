"""Fixtures: peers of all three runtimes on a database of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from interop import node_packages
from peers import rust_program
from peers.protocol import Peers, Programs
from peers.shared import Shared, prepare

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """If the Rust peer is not built yet, the first test builds it, and the others wait for that."""
    limit = 600 if rust_program.path().exists() else rust_program.BUILD_SECONDS + 600
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.interop)
            item.add_marker(pytest.mark.timeout(limit))


@pytest.fixture(scope="session")
def programs() -> Programs:
    """Node.js with its worker and the Rust peer; skips where npm or cargo cannot get them."""
    return Programs(node_packages.provide(), rust_program.provide())


@pytest.fixture
async def peers(programs: Programs, database_url: str) -> AsyncIterator[Peers]:
    """Peers on a database with the schema as we install it."""
    peers = Peers(programs, database_url)
    yield peers
    await peers.close()


@pytest.fixture
async def shared(peers: Peers) -> AsyncIterator[Shared]:
    """What the test sees of that database."""
    connection = await asyncpg.connect(peers.url)
    try:
        await prepare(connection)
        yield Shared(connection)
    finally:
        await connection.close(timeout=60)


@pytest.fixture
async def empty_peers(programs: Programs, empty_database_url: str) -> AsyncIterator[Peers]:
    """Peers on a database in which nobody installed the schema yet."""
    peers = Peers(programs, empty_database_url)
    yield peers
    await peers.close()


@pytest.fixture
async def empty_shared(empty_peers: Peers) -> AsyncIterator[Shared]:
    connection = await asyncpg.connect(empty_peers.url)
    try:
        await prepare(connection)
        yield Shared(connection)
    finally:
        await connection.close(timeout=60)
