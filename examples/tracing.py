"""`python -m examples.tracing`: a trace from an HTTP request to the jobs that come of it, printed as a tree.

It starts an embedded PostgreSQL in a temporary folder, or uses that of DATABASE_URL. The spans stay in
memory; a real program exports them to a collector.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI
from opentelemetry import trace
from opentelemetry.instrumentation.asyncpg import AsyncPGInstrumentor
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from graphile_worker import JobHelpers, JobSpec, Retry, make_worker_utils, run_migrations, run_once, task
from graphile_worker.contrib.opentelemetry import OpenTelemetryPlugin
from graphile_worker.database.embedded import EmbeddedPostgres

tracer = trace.get_tracer("shop")


@dataclass
class Order:
    id: int


@task
async def place_order(payload: Order, helpers: JobHelpers) -> None:
    with tracer.start_as_current_span("check the stock"):
        await helpers.query("select 1 as in_stock")
    await helpers.add_job(charge_card, payload)


@task(retry=Retry(lambda attempt, error: 0.0))
def charge_card(payload: Order, helpers: JobHelpers) -> None:
    """A plain function, which runs in a thread."""
    with tracer.start_as_current_span("call the bank"):
        if helpers.job.attempts == 1:
            raise TimeoutError("the bank did not answer")
    helpers.sync.add_jobs([JobSpec("notify", [{"order": payload.id, "who": who}]) for who in ("ada", "bob")])


@task
async def notify(payload: list[dict[str, object]]) -> None: ...


async def trace_one_order(url: str) -> None:
    """Send a request to the application, and run all jobs that come of it."""
    plugin = OpenTelemetryPlugin(relation="parent")
    async with make_worker_utils(connection_string=url, plugins=[plugin]) as utils:
        app = FastAPI()

        @app.post("/orders/{number}")
        async def create(number: int) -> None:
            await utils.add_job(place_order, Order(number))

        FastAPIInstrumentor.instrument_app(app, exclude_spans=["receive", "send"])
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            (await client.post("/orders/7")).raise_for_status()
    tasks: list[Any] = [place_order, charge_card, notify]
    while await is_anything_waiting(url):
        await run_once(connection_string=url, task_list=tasks, plugins=[plugin])


async def is_anything_waiting(url: str) -> bool:
    async with make_worker_utils(connection_string=url) as utils:
        return bool(await utils.jobs.list())


def print_tree(spans: Sequence[ReadableSpan]) -> None:
    """Print the trace of each request, parents above their children, with the attributes that say most."""
    for span in by_start(spans):
        if span.parent is None and span.kind is trace.SpanKind.SERVER:
            print(f"trace {span.context.trace_id:032x}")
            print_span(span, spans, 0)


def print_span(span: ReadableSpan, spans: Sequence[ReadableSpan], depth: int) -> None:
    milliseconds = ((span.end_time or 0) - (span.start_time or 0)) / 1e6
    name = "  " * depth + span.name
    print(f"{name:<42}{span.kind.name:<10}{milliseconds:>7.1f} ms  {notes_of(span)}".rstrip())
    for child in by_start(spans):
        if child.parent is not None and child.parent.span_id == span.context.span_id:
            print_span(child, spans, depth + 1)


def notes_of(span: ReadableSpan) -> str:
    found: Mapping[str, Any] = span.attributes or {}
    attempt, error = found.get("graphile_worker.attempt"), span.status.description
    notes = [
        f"job {found['messaging.message.id']}" if "messaging.message.id" in found else "",
        f"attempt {attempt}" if attempt is not None else "",
        f"batch of {found['messaging.batch.message_count']}"
        if "messaging.batch.message_count" in found
        else "",
        f"error: {error}" if error else "",
    ]
    return ", ".join(filter(None, notes))


def by_start(spans: Sequence[ReadableSpan]) -> list[ReadableSpan]:
    return sorted(spans, key=lambda span: span.start_time or 0)


@contextmanager
def collected_spans() -> Iterator[InMemorySpanExporter]:
    """The spans of this program, kept in memory."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    AsyncPGInstrumentor().instrument()  # type: ignore[no-untyped-call]
    try:
        yield exporter
    finally:
        provider.shutdown()


@contextmanager
def database() -> Iterator[str]:
    if url := os.environ.get("DATABASE_URL"):
        yield url
        return
    with tempfile.TemporaryDirectory() as folder, EmbeddedPostgres(Path(folder) / "data") as server:
        yield server.url()


async def main() -> None:
    logging.getLogger("graphile_worker").setLevel(logging.CRITICAL)  # the failed attempt is intended
    with database() as url:
        await run_migrations(connection_string=url)
        with collected_spans() as exporter:
            await trace_one_order(url)
            print_tree(exporter.get_finished_spans())


if __name__ == "__main__":
    asyncio.run(main())
