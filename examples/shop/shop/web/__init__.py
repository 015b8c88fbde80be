"""The web API: `uvicorn shop.web:api`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from ..state import open_state
from . import customers, orders, products


@asynccontextmanager
async def lifespan(api: FastAPI) -> AsyncIterator[None]:
    async with open_state() as api.state.shop:
        yield


api = FastAPI(title="Shop", lifespan=lifespan)
api.include_router(customers.router)
api.include_router(orders.router)
api.include_router(products.router)
