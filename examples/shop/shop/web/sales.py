"""Sales of a product: one endpoint waits for the result of a job, two others add it and ask for it later."""

from __future__ import annotations

from fastapi import APIRouter, HTTPException
from pydantic import BaseModel

from graphile_worker.contrib.fastapi import Jobs
from graphile_worker.errors import JobFailedError

from ..tasks.sales import CountSales, Sales, count_sales

router = APIRouter(prefix="/sales")
PATIENCE = 10.0  # seconds


class Answer(BaseModel):
    job_id: int
    state: str
    sales: Sales | None = None
    error: str | None = None


@router.get("/{sku}")
async def wait_for_sales(sku: str, jobs: Jobs) -> Sales:
    job = await jobs.add_job(count_sales, CountSales(sku))
    try:
        return await job.result(timeout=PATIENCE)
    except JobFailedError as error:
        raise HTTPException(422, error.message) from error
    except TimeoutError as error:
        raise HTTPException(504, "no worker is free") from error


@router.post("/{sku}", status_code=202)
async def begin_to_count(sku: str, jobs: Jobs) -> Answer:
    job = await jobs.add_job(count_sales, CountSales(sku))
    return Answer(job_id=job.id, state="ready")


@router.get("/jobs/{job_id}")
async def ask_for_sales(job_id: int, jobs: Jobs) -> Answer:
    status = await jobs.jobs.get_status(job_id)
    return Answer(job_id=job_id, state=status.state, sales=status.result, error=status.error)
