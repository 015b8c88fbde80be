"""A shop for each test: its own database, the web API, and fakes of the mail service and the bank."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from graphile_worker import WorkerUtils
from graphile_worker.contrib.fastapi import get_worker_utils
from shop.bank import Bank
from shop.database import Database
from shop.dev.fakes import FakeBank, FakeMail, make_fakes
from shop.mailer import Mailer
from shop.models import Customer, Product
from shop.state import State
from shop.web import api


async def create_tables(url: str) -> None:
    database = Database(_for_sqlalchemy(url))
    await database.create_tables()
    async with database.transaction() as session:
        session.add(Customer(name="Ada", email="ada@example.com"))
        session.add(Product(sku="socks", name="Wool socks", cents=1200))
    await database.close()


@pytest.fixture(scope="session")
def graphile_worker_prepare_database() -> Callable[[str], Any]:
    """Called once; the database of each test is a copy."""
    return create_tables


@pytest.fixture
async def database(graphile_worker_database: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Database]:
    url = _for_sqlalchemy(graphile_worker_database)
    monkeypatch.setenv("DATABASE_URL", url)  # `run_jobs(app=app)` enters the app's lifespan, which reads it
    database = Database(url)
    yield database
    await database.close()


@pytest.fixture
def mail() -> FakeMail:
    return FakeMail()


@pytest.fixture
def bank() -> FakeBank:
    return FakeBank()


@pytest.fixture
async def services(
    mail: FakeMail, bank: FakeBank, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Mailer, Bank]]:
    """Clients of the fakes, in this process. As `extensions` they replace those that the lifespan opens."""
    monkeypatch.setenv("MAIL_URL", "http://not-used.invalid")
    monkeypatch.setenv("BANK_URL", "http://not-used.invalid")
    transport = httpx.ASGITransport(make_fakes(mail, bank))
    async with httpx.AsyncClient(transport=transport, base_url="http://fakes") as http:
        yield Mailer(http), Bank(http)


@pytest.fixture
async def web(
    database: Database, services: tuple[Mailer, Bank], graphile_worker_utils: WorkerUtils
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the web API, which runs in this process too."""
    api.state.shop = State(database, *services)
    api.dependency_overrides[get_worker_utils] = lambda: graphile_worker_utils
    async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://shop") as client:
        yield client


def _for_sqlalchemy(url: str) -> str:
    return url.replace("postgresql://", "postgresql+asyncpg://", 1)
