"""State: what each process of the shop opens once, the web process and the worker alike."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx

from .bank import Bank
from .database import Database
from .mailer import Mailer
from .settings import read_settings


@dataclass(frozen=True)
class State:
    database: Database
    mailer: Mailer
    bank: Bank


@asynccontextmanager
async def open_state() -> AsyncIterator[State]:
    settings = read_settings()
    database = Database(settings.database_url)
    try:
        async with (
            httpx.AsyncClient(base_url=settings.mail_url, timeout=10) as mail,
            httpx.AsyncClient(base_url=settings.bank_url, timeout=10) as bank,
        ):
            yield State(database, Mailer(mail), Bank(bank))
    finally:
        await database.close()
