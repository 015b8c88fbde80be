"""What scrapes of `/metrics` cost the database: nothing at a worker, one sample for many at the dashboard."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
from prometheus_client import CollectorRegistry

from graphile_worker import make_worker_utils
from graphile_worker.admin import admin_app, everyone_may
from graphile_worker.contrib.http import HttpPlugin
from graphile_worker.contrib.prometheus import DatabaseMetrics, PrometheusPlugin
from service.probes import values_in
from support.proxy import Proxy, proxy_to
from support.working import PATIENCE, Workers, until

SCRAPES = 150


async def statements_of_scrapes(client: httpx.AsyncClient, proxy: Proxy) -> int:
    """How many more requests reach the database than in the same time without scrapes."""
    loop = asyncio.get_running_loop()
    before, began = proxy.requests, loop.time()
    assert before > 0
    for _ in range(SCRAPES):
        assert (await client.get("/metrics")).status_code == 200
    with_scrapes, took = proxy.requests - before, loop.time() - began
    before = proxy.requests
    await asyncio.sleep(took)
    return with_scrapes - (proxy.requests - before)


async def assert_that_scrapes_send_few(client: httpx.AsyncClient, proxy: Proxy) -> None:
    """In one of a few samples; others may have a reconnect in them."""
    samples: list[int] = []
    while not samples or (samples[-1] >= SCRAPES / 2 and len(samples) < 5):
        samples.append(await statements_of_scrapes(client, proxy))
    assert samples[-1] < SCRAPES / 2, samples


async def test_a_scrape_of_a_worker_sends_no_statement(
    workers: Workers, database_url: str, tmp_path: Path
) -> None:
    registry = CollectorRegistry()
    server = HttpPlugin(0, "127.0.0.1", registry=registry)

    async def hello() -> None: ...

    async with (
        proxy_to(database_url, tmp_path) as (proxy, url),
        make_worker_utils(connection_string=url) as utils,
        DatabaseMetrics(utils, registry=registry),
    ):
        plugins = [PrometheusPlugin(registry), server]
        runner = await workers.start({"hello": hello}, connection_string=url, plugins=plugins)
        async with httpx.AsyncClient(base_url=server.url or "", timeout=PATIENCE, trust_env=False) as client:

            async def is_read() -> bool:
                return "ready_jobs" in values_in((await client.get("/metrics")).text)

            await until(is_read)
            await assert_that_scrapes_send_few(client, proxy)
        await workers.stop(runner)


async def test_scrapes_of_the_dashboard_share_a_sample(database_url: str, tmp_path: Path) -> None:
    async with proxy_to(database_url, tmp_path) as (proxy, url):
        app = admin_app(connection_string=url, authorize=everyone_may)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            first = await client.get("/metrics")
            assert values_in(first.text)["exporter_up"] == 1
            await assert_that_scrapes_send_few(client, proxy)
        await app.aclose()
