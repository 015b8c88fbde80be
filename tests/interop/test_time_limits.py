"""A time limit that Node's client sets holds in a Python worker; Node's worker ignores it."""

from __future__ import annotations

import asyncio

import pytest

from graphile_worker import make_worker_utils, run_once
from interop.conftest import SharedDatabase
from support.working import PATIENCE, Jobs, headline

pytestmark = pytest.mark.interop


async def test_a_limit_set_by_node(either_database: SharedDatabase) -> None:
    async def hang() -> None:
        await asyncio.get_running_loop().create_future()

    await either_database.node.call(["addJob", "hang", {}, {"maxAttempts": 1, "flags": ["py:timeout=0.05"]}])
    async with asyncio.timeout(PATIENCE):
        await run_once(task_list={"hang": hang}, connection_string=either_database.url)
    row = await Jobs(either_database.connection).one()
    assert headline(row) == "the task ran longer than its time limit of 0.05 s"


async def test_a_node_worker_ignores_a_limit(either_database: SharedDatabase) -> None:
    jobs = Jobs(either_database.connection)
    async with (
        make_worker_utils(connection_string=either_database.url) as utils,
        either_database.node.worker("echo", pollInterval=50),
    ):
        await utils.add_job("echo", {"n": 1}, timeout=0.001)
        await jobs.until_gone()
