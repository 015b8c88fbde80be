"""The dashboard as a client sees it: an application on the test's database, called without a network."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from graphile_worker import WorkerUtils, make_worker_utils
from graphile_worker.admin import AdminApp, admin_app, everyone_may


@pytest.fixture
async def admin(database_url: str) -> AsyncIterator[AdminApp]:
    """A dashboard that lets everyone in."""
    app = admin_app(connection_string=database_url, authorize=everyone_may)
    yield app
    await app.aclose()


@pytest.fixture
async def http(admin: AdminApp) -> AsyncIterator[httpx.AsyncClient]:
    """A browser of sorts, same origin."""
    async with client_of(admin) as client:
        yield client


@pytest.fixture
async def utils(database_url: str) -> AsyncIterator[WorkerUtils]:
    """The client on the same database."""
    async with make_worker_utils(connection_string=database_url) as client:
        yield client


def client_of(app: AdminApp) -> httpx.AsyncClient:
    """An HTTP client that calls the application directly."""
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app),
        base_url="http://localhost",
        headers={"Sec-Fetch-Site": "same-origin"},
    )
