"""A Django project whose database Node's worker uses too: each runs its own tasks."""

from __future__ import annotations

import asyncio
import json

import pytest

from django_backend.test_suite import manage
from interop.conftest import SharedDatabase

pytestmark = pytest.mark.interop

ENQUEUE = """
from shop import tasks
tasks.add.using(priority=-1).enqueue(2, b=3)
print("enqueued")
"""
RESULTS = """
import json
from shop import tasks
print(json.dumps([tasks.add.get_result(str(id_)).return_value for id_ in {ids}]))
"""


async def test_node_and_django_share_a_queue(our_database: SharedDatabase) -> None:
    node, url = our_database.node, our_database.url

    async def django(*arguments: str) -> str:
        done = await asyncio.to_thread(manage, url, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    await django("migrate", "graphile_worker")
    await django("shell", "-c", ENQUEUE)
    await node.call(
        ["addJob", "shop.tasks.add", {"args": [1], "kwargs": {"b": 5}}], ["addJob", "echo", {"n": 1}]
    )
    ids = await our_database.connection.fetch(
        "select id from graphile_worker.jobs where task_identifier = 'shop.tasks.add' order by id"
    )
    async with node.worker("echo", pollInterval=50):
        await our_database.runs.wait_until(
            "not exists (select from graphile_worker.jobs where task_identifier = 'echo')"
        )
        waiting = await our_database.connection.fetch("select attempts from graphile_worker.jobs")
        assert [row["attempts"] for row in waiting] == [0, 0]  # Node leaves them alone
        await django("graphile_worker", "--once")
    output = await django("shell", "-c", RESULTS.format(ids=[row["id"] for row in ids]))
    assert json.loads(output.splitlines()[-1]) == [5, 6]
