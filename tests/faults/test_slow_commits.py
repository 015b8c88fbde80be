"""Commits that take long: who adds a job must not wait for the commits of others who do so."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg

from faults.scene import PATIENCE, fresh_database, set_system
from graphile_worker import make_worker_utils
from graphile_worker.database.embedded import EmbeddedPostgres
from support.working import Jobs, until

WAITING = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = $1"


async def test_jobs_are_committed_while_another_adder_waits_for_its_commit(
    broken_server: EmbeddedPostgres,
) -> None:
    """A standby that never answers keeps one commit waiting, and with it everybody who wants to notify."""
    url = await fresh_database(broken_server, "slow_commits")
    join = "&" if "?" in url else "?"
    patient, hasty = f"{url}{join}synchronous_commit=on", f"{url}{join}synchronous_commit=local"
    connection = await asyncpg.connect(hasty)
    heard: list[Any] = []
    await connection.add_listener("jobs:insert", lambda *notification: heard.append(notification))
    jobs, slow_ids = Jobs(connection), []
    is_over = False
    async with make_worker_utils(connection_string=patient) as slow:
        await slow.add_job("note")  # the task has a row now

        async def add_until_over() -> None:
            while not is_over:
                slow_ids.append((await slow.add_job("note")).id)

        async def is_held() -> bool:
            return await connection.fetchval(WAITING, "SyncRep") == 1

        async with make_worker_utils(connection_string=hasty) as quick:
            await set_system(broken_server, "synchronous_standby_names", "'nobody'")
            adding = asyncio.create_task(add_until_over())
            try:
                await until(is_held, timeout=PATIENCE)
                before = await jobs.count()
                following = [asyncio.create_task(quick.add_job("note", {"n": n})) for n in range(3)]

                async def are_committed() -> bool:
                    return await jobs.count() == before + 3

                await until(are_committed, timeout=PATIENCE)
                assert await is_held()
                assert not any(task.done() for task in following)  # each has yet to notify
            finally:
                is_over = True
                await set_system(broken_server, "synchronous_standby_names", None)
            ids = [job.id for job in await asyncio.gather(*following)]
            await adding
    assert len({*ids, *slow_ids}) == 3 + len(slow_ids)
    await until(lambda: len(heard) == 1 + len(slow_ids) + 3, timeout=PATIENCE)
    await connection.close(timeout=PATIENCE)
