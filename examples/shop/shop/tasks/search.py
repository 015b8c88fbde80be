"""index_product: debounced. Many changes of a product within two seconds are one job."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from graphile_worker import JobHelpers, WorkerUtils, task

from ..database import Database
from ..models import Product, SearchEntry

DELAY = timedelta(seconds=2)


@dataclass
class IndexProduct:
    sku: str


@task
async def index_product(payload: IndexProduct, helpers: JobHelpers) -> None:
    async with helpers.extension(Database).transaction() as session:
        product = await session.get_one(Product, payload.sku)
        await session.merge(SearchEntry(sku=product.sku, words=f"{product.sku} {product.name}".lower()))


async def index_soon(session: AsyncSession, sku: str) -> None:
    """Add the job, or move the waiting one for this product: they have the same key."""
    await WorkerUtils.bound(session).add_job(
        index_product, IndexProduct(sku), job_key=f"index:{sku}", run_at=DELAY
    )
