"""The web API: `uvicorn shop.web:api`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from graphile_worker.contrib.fastapi import GraphileWorkerApp

from ..state import open_state
from . import customers, orders, products, sales


@asynccontextmanager
async def lifespan(api: FastAPI) -> AsyncIterator[None]:
    async with open_state() as api.state.shop:
        yield


worker_app = GraphileWorkerApp()  # a client beside the state; the worker is a program of its own
api = FastAPI(title="Shop", lifespan=worker_app.wrap(lifespan))
api.include_router(customers.router)
api.include_router(orders.router)
api.include_router(products.router)
api.include_router(sales.router)
