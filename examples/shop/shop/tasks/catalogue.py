"""import_products: a batch job. Rows that fail are retried, the others are done."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from graphile_worker import JobHelpers, task

from ..database import Database
from ..models import Product
from .search import index_soon


@dataclass
class ProductRow:
    """A row of a supplier's file, where everything is text."""

    sku: str
    name: str
    price: str


@task(max_attempts=3)
async def import_products(payload: list[ProductRow], helpers: JobHelpers) -> list[Exception | None]:
    """Returns the outcome of each row: an error, or None if it was imported."""
    outcomes: list[Exception | None] = []
    async with helpers.extension(Database).transaction() as session:
        for row in payload:
            try:
                product = parse_row(row)
            except ValueError as error:
                outcomes.append(error)
                continue
            await session.merge(product)  # to import a row twice changes nothing
            await index_soon(session, product.sku)
            outcomes.append(None)
    return outcomes


def parse_row(row: ProductRow) -> Product:
    try:
        cents = round(Decimal(row.price) * 100)
    except (ArithmeticError, ValueError):
        raise ValueError(f"{row.sku}: {row.price!r} is not a price") from None
    return Product(sku=row.sku, name=row.name, cents=cents)
