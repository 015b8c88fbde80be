"""The tables, the schema of the queue, and a few rows to play with."""

from __future__ import annotations

from graphile_worker import run_migrations

from ..database import Database
from ..models import Customer, Product
from ..tasks.search import index_soon

PRODUCTS = {"socks": ("Wool socks", 1200), "mug": ("Coffee mug", 900), "lamp": ("Desk lamp", 4900)}


async def prepare(url: str) -> None:
    """Create what is missing; does nothing the second time."""
    await run_migrations(connection_string=url)  # in production: `graphile-worker migrate`
    database = Database(url)
    try:
        await database.create_tables()
        async with database.transaction() as session:
            if await session.get(Customer, 1) is not None:
                return
            session.add(Customer(name="Ada", email="ada@example.com"))
            for sku, (name, cents) in PRODUCTS.items():
                session.add(Product(sku=sku, name=name, cents=cents))
                await index_soon(session, sku)
    finally:
        await database.close()
