"""One database for a whole module: there are many combinations of libraries."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest

from foreign.places import PLACES, Place
from support.server import DatabaseServer


@pytest.fixture(scope="module")
def shared_url(server: DatabaseServer, template_database: str) -> Iterator[str]:
    name = server.create_database(template=template_database)
    yield server.url(name)
    server.drop_database(name)


@pytest.fixture
async def observer(shared_url: str) -> AsyncIterator[Any]:
    """Another session: it sees what has been committed. The tables are empty at first."""
    connection = await asyncpg.connect(shared_url)
    for table in ("jobs", "tasks", "job_queues"):  # for a few rows quicker than truncate
        await connection.execute(f"delete from graphile_worker._private_{table}")
    try:
        yield connection
    finally:
        await connection.close(timeout=60)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests with a `place` run on every combination, or on those that the module names."""
    if "place" in metafunc.fixturenames:
        metafunc.parametrize("place", getattr(metafunc.module, "PLACE_NAMES", PLACES), indirect=True)


@pytest.fixture
async def place(request: pytest.FixtureRequest, shared_url: str, observer: Any) -> AsyncIterator[Place]:
    """A connection or session of each library in turn."""
    async with PLACES[request.param](shared_url) as place:
        yield place
