"""How often a worker and a client wait for an answer of the server, which may be far away.

A statement takes two round trips the first time that a session sends it, and one after that; a statement
without parameters takes one if its rows are not read. A proxy counts, so distance does not matter here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import asyncpg
import pytest

from graphile_worker import JobSpec, make_worker_utils, run_once
from graphile_worker.options import RecoveryOptions
from graphile_worker.testing import EventRecorder
from support.proxy import Link, Proxy, proxy_to
from support.working import SELDOM, Gate, Jobs, Workers, until, until_listening

START = 13
"""Two each for the schema, the registration, deaths of others, ids of tasks, the history and what operators
ask; one for the settings of the session."""
FIRST_FETCH = 2  # one may be under way
ENDS = 1  # the message that ends a session
JOBS = 20
QUIET = RecoveryOptions(heartbeat_interval=SELDOM, grace=3 * SELDOM, sweep_interval=SELDOM)

pytestmark = pytest.mark.usefixtures("never_slow")  # a worker that takes long to look for jobs connects more


class Distance:
    """A proxy in front of the server, and how many round trips a connection begins with."""

    def __init__(self, proxy: Proxy, url: str) -> None:
        self.proxy = proxy
        self.url = url
        self.handshake = 0

    async def measure(self) -> None:
        connection = await asyncpg.connect(self.url)
        self.handshake = self.proxy.links[-1].requests
        await connection.close()

    def links(self, text: bytes) -> list[Link]:
        """The connections on which this text was sent."""
        return [link for link in self.proxy.links if any(text in sent for sent in link.asked)]

    def statements(self, link: Link) -> list[bytes]:
        """What was sent on it after the handshake."""
        return link.asked[self.handshake :]


@pytest.fixture
async def distance(database_url: str, tmp_path: Path, workers: Workers) -> AsyncIterator[Distance]:
    """In front of a database in which a worker has run before."""
    await workers.stop(await workers.start({"task": Gate()}))
    async with proxy_to(database_url, tmp_path) as (proxy, url):
        distance = Distance(proxy, url)
        await distance.measure()
        proxy.links.clear()
        yield distance


async def test_a_start_takes_few_round_trips(workers: Workers, distance: Distance) -> None:
    await workers.start({"task": Gate()}, connection_string=distance.url)
    sent = distance.statements(distance.proxy.links[0])
    assert len(sent) <= START + FIRST_FETCH, sent


async def test_on_a_pool_of_the_caller_it_waits_for_the_first_heartbeat_meanwhile(
    workers: Workers, distance: Distance
) -> None:
    async with asyncpg.create_pool(distance.url, min_size=0, max_size=6) as pool:
        runner = await workers.start({"task": Gate()}, pg_pool=pool)
        sent = distance.statements(distance.proxy.links[0])
        assert len(sent) <= START + FIRST_FETCH + 1, sent  # the pool resets a connection that is returned
        (heartbeats,) = distance.links(b"tcp_keepalives_interval', '3'")
        lock, report, state = 2, 2, 2
        assert len(distance.statements(heartbeats)) <= lock + report + state
        await workers.stop(runner)


async def test_it_listens_with_the_first_statement_of_a_connection(
    workers: Workers, distance: Distance, jobs: Jobs, recorder: EventRecorder
) -> None:
    await workers.start({"task": Gate()}, connection_string=distance.url, events=recorder.events)
    await until_listening(recorder, jobs.connection)
    (listening,) = distance.links(b'listen "jobs:insert"')
    assert len(distance.statements(listening)) == 1, listening.asked


async def test_an_idle_worker_stops_within_few_round_trips(
    workers: Workers, distance: Distance, jobs: Jobs, recorder: EventRecorder
) -> None:
    runner = await workers.start(
        {"task": Gate()},
        connection_string=distance.url,
        events=recorder.events,
        recovery=QUIET,
    )
    await until_listening(recorder, jobs.connection)
    (listening,) = distance.links(b'listen "')
    (heartbeats,) = distance.links(b"tcp_keepalives_interval', '3'")
    lock, report, state = 2, 2, 2
    await until(lambda: len(distance.statements(heartbeats)) == lock + report + state)
    before = {id(link): link.requests for link in (listening, heartbeats)}
    await workers.stop(runner)
    sent = {id(link): link.requests - before[id(link)] - ENDS for link in (listening, heartbeats)}
    unlisten, reset, deregister = 1, 1, 2
    assert sent[id(listening)] <= unlisten + reset, listening.asked
    assert sent[id(heartbeats)] <= deregister, heartbeats.asked


async def test_a_run_without_jobs_sends_two_statements(distance: Distance) -> None:
    await run_once(task_list={"task": Gate()}, connection_string=distance.url)
    (link,) = distance.proxy.links
    assert len(distance.statements(link)) == 2 * 2, link.asked


async def test_adding_takes_one_round_trip(distance: Distance) -> None:
    async with make_worker_utils(connection_string=distance.url) as utils:
        (link,) = distance.proxy.links
        many = [JobSpec("task", number) for number in range(JOBS)]
        adds: dict[str, Callable[[], Awaitable[object]]] = {
            "one": lambda: utils.add_job("task", 1),
            "one with a key": lambda: utils.add_job("task", 1, job_key="key", queue_name="queue"),
            "many": lambda: utils.add_jobs(many),
        }
        sent = {}
        for what, add in adds.items():
            await add()  # prepares the statement
            before = link.requests
            await add()
            sent[what] = link.requests - before
    assert sent == dict.fromkeys(adds, 1), link.asked


async def test_a_job_takes_a_fetch_and_a_write(
    workers: Workers, distance: Distance, jobs: Jobs, recorder: EventRecorder
) -> None:
    done = asyncio.Event()

    async def task() -> None:
        done.set()

    await workers.start(
        {"task": task},
        connection_string=distance.url,
        events=recorder.events,
        recovery=QUIET,
    )
    await until_listening(recorder, jobs.connection)

    async def run_one() -> None:
        done.clear()
        await jobs.add("task")
        await done.wait()
        await jobs.until_gone()

    await run_one()
    fetches, writes = distance.proxy.links[:2]
    before = fetches.requests, writes.requests
    for _ in range(JOBS):
        await run_one()
    assert fetches.requests - before[0] < 1.5 * JOBS, fetches.asked[before[0] :]
    assert writes.requests - before[1] < 1.5 * JOBS, writes.asked[before[1] :]
