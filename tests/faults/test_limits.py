"""Limits that an administrator sets for a role: connections, and the time of statements and sessions."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from faults.scene import BRIEF, PATIENCE, Log, Ran, rate
from graphile_worker.hooks.events import PoolListenError, WorkerGetJobError
from graphile_worker.testing.results import EventRecorder
from support.working import Gate, Jobs, Workers, terminate_workers, until, workers_of

ROLE = "limited_worker"


@pytest.fixture
async def limited_url(database_url: str, connection: Any) -> AsyncIterator[str]:
    """The database, for a role that owns the schema and may be limited."""
    if not await connection.fetchval("select rolsuper from pg_roles where rolname = current_user"):
        pytest.skip("only a superuser may make roles with a limit")
    await connection.execute(f"create role {ROLE} login")
    await connection.execute(
        f"grant all on schema graphile_worker to {ROLE}; "
        f"grant all on all tables in schema graphile_worker to {ROLE}; "
        f"grant all on all sequences in schema graphile_worker to {ROLE}; "
        f"alter role {ROLE} bypassrls"
    )
    yield re.sub(r"://[^/@]*@", f"://{ROLE}@", database_url)
    await connection.execute(f"drop owned by {ROLE}; drop role {ROLE}")


@pytest.fixture
async def limited(limited_url: str) -> AsyncIterator[Workers]:
    async for workers in workers_of(limited_url):
        yield workers


async def test_a_limit_of_connections_for_the_role_is_waited_out(
    limited: Workers, jobs: Jobs, recorder: EventRecorder, ran: Ran, log: Log
) -> None:
    await limited.start({"note": ran}, events=recorder.events, poll_interval=0.2, **BRIEF)
    await log.says("connected; listening")
    await jobs.connection.execute(f"alter role {ROLE} connection limit 0")
    await terminate_workers(jobs.connection)
    await log.says("jobs cannot be fetched: ", "no connection left: too many connections for role")
    await jobs.add_many("note", 3)
    assert await rate(lambda: recorder.count(WorkerGetJobError)) <= 7.5
    assert len(log.lines) <= 25, log.lines
    await jobs.connection.execute(f"alter role {ROLE} connection limit -1")
    await ran.until(0, 1, 2)
    await log.says("jobs are fetched again", "heartbeat restored")
    ran.assert_each_once(3)


@pytest.mark.parametrize(
    "setting",
    [
        "statement_timeout = '50ms'",
        "lock_timeout = '1ms'",
        "idle_session_timeout = '200ms'",
        "idle_in_transaction_session_timeout = '1ms'",
    ],
)
async def test_limits_of_time_for_the_role_do_not_disturb_the_worker(
    limited: Workers, jobs: Jobs, recorder: EventRecorder, ran: Ran, log: Log, setting: str
) -> None:
    """They are meant for others: the worker's sessions have limits of their own."""
    name = setting.partition(" ")[0]
    if not await jobs.connection.fetchval("select current_setting($1, true) is not null", name):
        pytest.skip(f"this server does not know {name}")
    gate = Gate()
    await limited.start({"note": ran, "wait": gate}, events=recorder.events, **BRIEF)
    await log.says("connected; listening")
    await jobs.connection.execute(f"alter role {ROLE} set {setting}")
    await terminate_workers(jobs.connection)  # so that it holds for every session
    await until(lambda: recorder.count(PoolListenError) >= 1, timeout=PATIENCE)
    await until(lambda: is_back(jobs), timeout=PATIENCE)
    await jobs.add("wait")
    await gate.until_inside(1, timeout=PATIENCE)
    async with jobs.connection.transaction():  # the outcome has to wait for this lock
        await jobs.connection.execute("select from graphile_worker._private_jobs for update")
        gate.open()
        await asyncio.sleep(1)  # timing: longer than the limits; more is as good
    await jobs.add_many("note", 5, queue="serial")
    await ran.until(*range(5))
    await jobs.until_gone(timeout=PATIENCE)
    ran.assert_each_once(5)
    assert recorder.count(PoolListenError) <= 3, log.lines
    assert len(log.lines) <= 20, log.lines


async def is_back(jobs: Jobs) -> bool:
    """Whether the worker listens and sends heartbeats again."""
    return await jobs.connection.fetchval(
        "select count(*) filter (where query ilike 'listen%') = 1 "
        "and count(*) filter (where query ilike '%_private_py_workers worker%') >= 1 "
        "from pg_stat_activity where datname = current_database() and application_name = 'graphile_worker'"
    )
