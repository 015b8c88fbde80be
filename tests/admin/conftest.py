"""The dashboard as a client sees it: an application on the test's database, called without a network."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from scripts.lively.addresses import addresses, subject_of

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


async def address_in(connection: Any, path: str) -> str | None:
    """The address of a route with a value that exists, or None if there is none."""
    subject = subject_of(path)
    if subject is None:
        return None if "{" in path else path
    value = await connection.fetchval(f"{subject[1]} limit 1")
    return None if value is None else addresses(path, subject[0], [value])[0]
