"""`make observe`: a web application, a worker, and what operations people see of them.

One request adds a job, whose task adds another one that fails. The program shows the trace of the request as
a collector gets it, a scrape for Prometheus, the event in Sentry, and a log line. It starts an embedded
PostgreSQL in a temporary folder, or uses that of DATABASE_URL. Nothing is sent anywhere.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
from typing import Any

import httpx
import sentry_sdk
from fastapi import FastAPI
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from graphile_worker import JobHelpers, make_worker_utils, run, run_migrations, task
from graphile_worker.contrib.http import HttpPlugin
from graphile_worker.hooks import Events
from graphile_worker.hooks.events import JobCompleted
from graphile_worker.logging import JsonFormatter
from graphile_worker.options import WorkerOptions

from .tracing import collected_spans, database, print_tree

PLUGINS = ["otel", "sentry", "prometheus"]
PLUGIN_OPTIONS = {"otel": {"relation": "parent"}}
"""What the configuration file of a project would say."""
METRICS = (
    "graphile_worker_jobs_total",
    "graphile_worker_job_duration_seconds_count",
    "graphile_worker_slots",
)

log = logging.getLogger("shop.bank")
sent: list[Any] = []
"""Events that Sentry would get."""


@task
async def place_order(payload: dict[str, int], helpers: JobHelpers) -> None:
    await helpers.query("select 1 as in_stock")
    await helpers.add_job(charge_card, payload, max_attempts=1)


@task
def charge_card(payload: dict[str, int]) -> None:
    """A plain function, which runs in a thread."""
    log.warning("the bank is slow")
    raise TimeoutError("the bank did not answer")


class KeepingTransport(Transport):
    """Keeps what would be sent to Sentry."""

    def capture_envelope(self, envelope: Envelope) -> None:
        sent.extend(item.payload.json for item in envelope.items if item.type == "event")


def web_application(utils: Any) -> FastAPI:
    app = FastAPI()

    @app.post("/orders/{number}")
    async def create(number: int) -> dict[str, int]:
        job = await utils.add_job(place_order, {"order": number})
        return {"job": job.id}

    FastAPIInstrumentor.instrument_app(app, exclude_spans=["receive", "send"])
    return app


async def observe(url: str) -> str:
    """Send a request, let the worker run the jobs that come of it; returns a scrape of the worker."""
    options = WorkerOptions(connection_string=url, plugins=PLUGINS, plugin_options=PLUGIN_OPTIONS)
    ended, events = asyncio.Semaphore(0), Events()
    events.on(JobCompleted, lambda _: ended.release())
    server = HttpPlugin(0, "127.0.0.1")
    tasks: Any = [place_order, charge_card]
    async with (
        make_worker_utils(options=options) as utils,
        run(options=options, task_list=tasks, events=events, plugins=[server], concurrency=2),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(web_application(utils)), base_url="http://shop"
        ) as shop,
        httpx.AsyncClient(base_url=server.url or "") as operations,
    ):
        response = await shop.post("/orders/7")
        print(f"\nPOST /orders/7 answers {response.status_code} {response.text}")
        for _ in tasks:
            await ended.acquire()
        return (await operations.get("/metrics")).text


def show(title: str) -> None:
    print(f"\n== {title}\n")


def show_scrape(scrape: str) -> None:
    for line in sorted(scrape.splitlines()):
        if line.startswith(METRICS) and not line.endswith(" 0.0"):
            print(line)


def show_event(event: Any) -> None:
    error = event["exception"]["values"][-1]
    about = event["contexts"]["graphile_worker"]
    print(f"{error['type']}: {error['value']}")
    print(f"  in {error['stacktrace']['frames'][-1]['function']}, job {about['job_id']}, ", end="")
    print(f"attempt {about['attempt']} of {about['max_attempts']}")
    print(f"  trace {event['contexts']['trace']['trace_id']}")


def show_line(text: str) -> None:
    line = json.loads(text)
    for key in ("level", "logger", "msg", "task", "job_id", "attempt", "trace_id", "span_id"):
        print(f"{key:<9}{line[key]}")


async def main() -> None:
    logging.getLogger("graphile_worker").setLevel(logging.CRITICAL)  # the failure is intended
    lines = io.StringIO()
    handler = logging.StreamHandler(lines)
    handler.setFormatter(JsonFormatter())
    log.addHandler(handler)
    log.propagate = False
    sentry_sdk.init("https://public@sentry.invalid/1", transport=KeepingTransport, default_integrations=False)
    with database() as url, collected_spans() as exporter:
        await run_migrations(connection_string=url)
        scrape = await observe(url)
        sentry_sdk.flush()
        show("The trace, as a collector gets it")
        print_tree(exporter.get_finished_spans())
    show("The metrics, as Prometheus scrapes them")
    show_scrape(scrape)
    show("The event in Sentry")
    for event in sent:
        show_event(event)
    show("A log line of the task")
    show_line(lines.getvalue())


if __name__ == "__main__":
    asyncio.run(main())
