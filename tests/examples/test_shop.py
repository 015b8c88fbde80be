"""The shop: started by its one command as a newcomer would, stopped by a signal, and its own tests."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from graphile_worker.database.embedded import EmbeddedPostgres
from support.ports import unused_port
from support.working import until

STARTS_WITHIN = 120  # seconds: a database and six processes
START, TEST = 0, -1  # commands of the README


@pytest.fixture
def shop(example: Any) -> Any:
    """The example, with the commands changed to use free ports, and no database in the environment."""
    del example.environment["DATABASE_URL"]
    fakes_port = unused_port()
    example.blocks = [
        block.replace("localhost:8000", f"localhost:{example.port}") for block in example.blocks
    ]
    example.blocks[START] = f"python -m shop --port {example.port} --fakes-port {fakes_port}"
    example.fakes = f"http://127.0.0.1:{fakes_port}"
    return example


async def test_orders_are_processed_and_a_declined_card_leaves_nothing_behind(shop: Any) -> None:
    log = shop.start()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{shop.port}") as client:
        await until(lambda: _answers(client, log), timeout=STARTS_WITHIN, every=0.1)
        order = json.loads(shop.run())
        assert (order["cents"], order["status"]) == (1200, "placed")
        await until(lambda: _is_paid(client, order["id"]))
    async with _database(shop.folder) as database:
        # What is left of the order that was paid: the review, a week later.
        await until(lambda: _tasks_are(database, ["ask_for_review"]))
        assert (shop.folder / "archive" / f"invoice-{order['id']}.json.gz").is_file()

        assert "declined" in shop.run()
        assert await database.fetchval("select count(*) from orders") == 1
        assert await _tasks_are(database, ["ask_for_review"])

        assert json.loads(shop.run())["email"] == "bob@greylist.example"
        await until(lambda: "e-mail to bob@greylist.example: Welcome" in log.read_text())
        await until(lambda: "retrying in 2.7 s" in log.read_text())
    assert "ask_for_review" in shop.run()

    assert shop.stop(signal.SIGINT) == 0, log.read_text()
    assert shop.processes() == {}
    assert not EmbeddedPostgres(shop.folder / ".graphile-worker").is_running


async def test_sigterm_stops_everything(shop: Any) -> None:
    log = shop.start()
    await until(lambda: "ready: graphile-worker" in log.read_text(), timeout=STARTS_WITHIN, every=0.1)
    assert shop.stop(signal.SIGTERM) == 0, log.read_text()
    assert "all outcomes are written" in log.read_text()
    assert shop.processes() == {}
    assert not EmbeddedPostgres(shop.folder / ".graphile-worker").is_running


async def test_everything_stops_if_a_process_ends(shop: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", shop.port))
        taken.listen()
        log = shop.start()
        await until(lambda: "stopping the shop" in log.read_text(), timeout=STARTS_WITHIN, every=0.1)
        assert shop.wait() == 1, log.read_text()
    assert "address already in use" in log.read_text().lower()
    assert shop.processes() == {}


def test_its_own_tests_pass(shop: Any) -> None:
    shop.blocks = [shop.blocks[TEST]]
    assert " passed" in shop.run(timeout=240)


async def _answers(client: httpx.AsyncClient, log: Path) -> bool:
    assert "stopping the shop" not in log.read_text(), log.read_text()
    try:
        return (await client.get("/docs")).is_success
    except httpx.TransportError:
        return False


async def _is_paid(client: httpx.AsyncClient, order_id: int) -> bool:
    return bool((await client.get(f"/orders/{order_id}")).json()["status"] == "paid")


@asynccontextmanager
async def _database(folder: Path) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(EmbeddedPostgres(folder / ".graphile-worker").url())
    try:
        yield connection
    finally:
        await connection.close()


async def _tasks_are(database: Any, tasks: list[str]) -> bool:
    rows = await database.fetch("select task_identifier from graphile_worker.jobs order by id")
    return [row["task_identifier"] for row in rows] == tasks
