"""The role of docs/admin/read-only.md can read everything that the dashboard shows, and change nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator

import asyncpg
import pytest
from scripts.lively.addresses import is_about_one_thing, is_readable

from admin.conftest import client_of
from docs.blocks import ROOT, blocks_of
from graphile_worker import make_worker_utils
from graphile_worker.admin import admin_app, everyone_may
from graphile_worker.admin.table import ROUTES
from support.server import DatabaseServer

PAGE = ROOT / "docs" / "admin" / "read-only.md"


@pytest.fixture
def role(server: DatabaseServer, database_url: str) -> Iterator[str]:
    """Created by the statements of the documentation, under a name of its own."""
    name = f"dashboard_{os.getpid()}_{os.urandom(3).hex()}"
    (script,) = [block.text for block in blocks_of(PAGE) if block.path == "read_only_role.sql"]
    script = script.replace("dashboard", name)
    server.run(database_url, lambda connection: connection.execute(script))
    server.run(
        database_url, lambda connection: connection.execute(script.split(";", 1)[1])
    )  # after an upgrade
    yield name
    server.run(database_url, lambda connection: connection.execute(f"drop owned by {name}; drop role {name}"))


async def test_the_role_sees_everything_and_changes_nothing(database_url: str, role: str) -> None:
    async with make_worker_utils(connection_string=database_url) as utils:
        await utils.add_job("send_email", {"to": "ada"}, queue_name="mail")
    pool = await asyncpg.create_pool(
        database_url, min_size=1, max_size=4, setup=lambda connection: connection.execute(f"set role {role}")
    )
    app = admin_app(pg_pool=pool, authorize=everyone_may)
    async with pool, client_of(app) as client:
        for route in ROUTES:
            if is_readable(route) and not is_about_one_thing(route.path):
                answer = await client.get(route.path)
                assert answer.status_code == 200, f"{route.path}: {answer.text[:500]}"
        async with pool.acquire() as connection:
            assert await connection.fetchval("select count(*) from graphile_worker._private_jobs") == 1
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute("delete from graphile_worker._private_jobs")
        await app.aclose()
