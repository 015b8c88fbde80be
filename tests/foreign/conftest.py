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
    await connection.execute(
        "truncate graphile_worker._private_jobs, graphile_worker._private_tasks, "
        "graphile_worker._private_job_queues"
    )
    try:
        yield connection
    finally:
        await connection.close(timeout=60)


@pytest.fixture(params=PLACES)
async def place(request: pytest.FixtureRequest, shared_url: str, observer: Any) -> AsyncIterator[Place]:
    """A connection or session of each library in turn."""
    async with PLACES[request.param](shared_url) as place:
        yield place
