"""count_sales: a job whose result is kept, for an endpoint that waits for it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import func, select

from graphile_worker import GiveUp, JobHelpers, task

from ..database import Database
from ..models import Order, Product


@dataclass
class CountSales:
    sku: str


@dataclass
class Sales:
    sku: str
    orders: int
    cents: int


@task(keep=timedelta(hours=1))
async def count_sales(payload: CountSales, helpers: JobHelpers) -> Sales:
    totals = select(func.count(), func.coalesce(func.sum(Order.cents), 0)).where(Order.sku == payload.sku)
    async with helpers.extension(Database).transaction() as session:
        if await session.get(Product, payload.sku) is None:
            raise GiveUp(f"there is no product {payload.sku}")  # another attempt would not find it either
        orders, cents = (await session.execute(totals)).one()
    return Sales(payload.sku, orders, cents)
