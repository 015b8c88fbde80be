"""Products: changes update the search index soon, and a file of the supplier is imported by a job."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import select

from graphile_worker import WorkerUtils

from ..models import Product, SearchEntry
from ..tasks.catalogue import ProductRow, import_products
from ..tasks.search import index_soon
from .dependencies import Session

router = APIRouter(prefix="/products")


class ProductDetails(BaseModel):
    name: str
    cents: int = Field(gt=0)


class ProductView(ProductDetails):
    model_config = ConfigDict(from_attributes=True)
    sku: str


@router.put("/{sku}", response_model=ProductView)
async def save_product(sku: str, details: ProductDetails, session: Session) -> Product:
    product = await session.merge(Product(sku=sku, name=details.name, cents=details.cents))
    await index_soon(session, sku)
    return product


@router.post("/import", status_code=202)
async def start_import(rows: list[ProductRow], session: Session) -> dict[str, int]:
    job = await WorkerUtils.bound(session).add_job(import_products, rows)
    return {"job": job.id}


@router.get("", response_model=list[ProductView])
async def search_products(session: Session, q: str = "") -> list[Product]:
    """Products whose entry in the index contains the text."""
    entries = select(SearchEntry.sku).where(SearchEntry.words.contains(q.lower(), autoescape=True))
    found = await session.scalars(select(Product).where(Product.sku.in_(entries)).order_by(Product.sku))
    return list(found)
