"""Live updates: one sampler for all readers, and none without them."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from msgspec.structs import replace
from scripts.lively.addresses import is_page

from admin.conftest import address_in, client_of
from admin.streams import Reader, reading, stream_scope
from graphile_worker import WorkerUtils
from graphile_worker.admin import AdminApp, Identity, admin_app
from graphile_worker.admin.live.hub import (
    MAX_SHARED,
    MAX_STREAMS_OF_USER,
    TOPIC_EVERY,
    Hub,
    Stream,
    StreamEvent,
    hubs_of,
)
from graphile_worker.admin.operations.runner import OperationRunner
from graphile_worker.admin.table import ROUTES
from support.working import Gate, Jobs, Workers, until


def hub_of(app: AdminApp) -> Hub:
    return hubs_of(app).of(app.databases[0])


async def test_a_stream_begins_with_hello_and_gets_samples(admin: AdminApp, utils: WorkerUtils) -> None:
    await utils.add_job("task")
    async with reading(admin) as reader:
        assert reader.headers["content-type"].startswith("text/event-stream")
        assert reader.headers["x-accel-buffering"] == "no"
        assert "no-transform" in reader.headers["cache-control"]
        assert (await reader.next()).name == "hello"
        sample = await reader.next("overview")
        assert sample.data["ready"] == {"value": 1, "kind": "exact"}
    await until(lambda: hub_of(admin).streams == 0)


async def test_a_new_job_is_announced(admin: AdminApp, utils: WorkerUtils) -> None:
    async with reading(admin, "jobs") as reader:
        await reader.next("hello")
        await utils.add_job("task")
        changed = await reader.next("changed")
        assert changed.data == {"topics": ["jobs"]}


async def test_a_job_that_is_looked_at_is_announced_when_it_changes(
    admin: AdminApp, utils: WorkerUtils, jobs: Jobs
) -> None:
    """First because it may have changed since its page was made. SQL does not have to know of a revision."""
    hub = hub_of(admin)
    hub.interval = 0.05
    job = await utils.add_job("task")
    async with reading(admin, f"job:{job.id}") as reader:
        assert (await reader.next("changed")).data == {"topics": [f"job:{job.id}"]}
        await jobs.connection.execute("update graphile_worker._private_jobs set priority = 5")
        assert (await reader.next("changed")).data == {"topics": [f"job:{job.id}"]}


async def test_a_sample_that_a_page_asks_for_hides_no_change(
    admin: AdminApp, utils: WorkerUtils, jobs: Jobs
) -> None:
    hub = hub_of(admin)
    hub.interval = 3600
    job = await utils.add_job("task")
    async with reading(admin, f"job:{job.id}") as reader:
        assert (await reader.next("changed")).data == {"topics": [f"job:{job.id}"]}
        await jobs.connection.execute("update graphile_worker._private_jobs set priority = 5")
        await hub.current(max_age=0)
        assert (await reader.next("changed")).data == {"topics": [f"job:{job.id}"]}


async def test_twenty_readers_share_one_sampler_and_an_idle_dashboard_sends_nothing(admin: AdminApp) -> None:
    hub, meter = hub_of(admin), admin.databases[0].meter
    hub.interval = 3600
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(reading(admin))
        await first.next("overview")
        runner = admin.databases[0].runner
        assert isinstance(runner, OperationRunner)
        await until(lambda: runner._later is None)  # it has looked for operations, once
        cost = meter.total
        assert cost > 0
        others = [hub.subscribe(["overview"]) for _ in range(19)]
        samples = await asyncio.gather(*(hub.current() for _ in range(20)))
        assert len(set(map(id, samples))) == 1
        assert meter.total == cost
        for other in others:
            hub.unsubscribe(other)
        sampling = hub._loop
        assert sampling is not None
    await until(lambda: hub.streams == 0)
    taken = len(hub.sampler.samples)
    await until(sampling.done)  # what takes the samples has ended
    assert (meter.total, len(hub.sampler.samples)) == (cost, taken)


async def test_slow_samples_become_rare(admin: AdminApp) -> None:
    hub = hub_of(admin)
    assert hub.pause == hub.interval
    hub._duration = 0.6
    assert hub.pause == pytest.approx(12)


async def test_changes_are_joined_and_a_topic_is_announced_once_a_second(admin: AdminApp) -> None:
    hub = hub_of(admin)
    hub.interval = 3600
    async with reading(admin, "operation:7,operation:8") as reader:
        await reader.next("hello")
        began = time.monotonic()
        for _ in range(50):
            hub.publish("operation:7")
        hub.publish("operation:8", "operation:9")
        first = await reader.next("changed")
        assert first.data == {"topics": ["operation:7", "operation:8"]}
        hub.publish("operation:7")
        assert (await reader.next("changed")).data == {"topics": ["operation:7"]}
        assert time.monotonic() - began >= TOPIC_EVERY


async def test_a_reader_that_was_away_hears_that_all_may_have_changed(admin: AdminApp) -> None:
    hub_of(admin).interval = 3600
    async with reading(admin, "jobs", last_id="12345") as reader:
        assert (await reader.next("changed")).data == {"topics": ["jobs"]}


async def test_a_slow_reader_gets_the_latest_only() -> None:
    stream = Stream(["jobs", "overview"])
    for number in range(1000):
        stream.put(StreamEvent("overview", number, number))
        stream.put_changed(["jobs", "queues"], number)
    found = await stream.next(1)
    assert [(event.name, event.data) for event in found] == [
        ("overview", 999),
        ("changed", {"topics": ["jobs"]}),
    ]


async def test_streams_are_limited(admin: AdminApp) -> None:
    hub_of(admin).interval = 3600
    async with AsyncExitStack() as stack, client_of(admin) as client:
        for _ in range(10):
            await stack.enter_async_context(reading(admin))
        answer = await client.get("/api/v1/events")
        assert answer.status_code == 429
    async with reading(admin) as reader:
        assert (await reader.next()).name == "hello"


@pytest.mark.parametrize("topics", [",", "jobs;drop", "job:x", "job:" + "9" * 30, ",".join(["jobs"] * 30)])
async def test_topics_are_checked(http: httpx.AsyncClient, topics: str) -> None:
    answer = await http.get("/api/v1/events", params={"topics": topics})
    assert answer.status_code == 400
    assert answer.headers["content-type"].startswith("application/problem+json")


async def test_streams_end_with_the_session(database_url: str) -> None:
    end = datetime.now(UTC) + timedelta(seconds=0.3)
    app = admin_app(connection_string=database_url, authorize=lambda _: Identity(name="ada", expires_at=end))
    async with reading(app) as reader:
        await reader.end()
    await app.aclose()


async def test_streams_end_before_the_server_waits_for_them(admin: AdminApp) -> None:
    async with reading(admin) as reader:
        await reader.next("overview")
        admin.stop()
        await reader.end()


async def test_an_outage_is_announced_and_values_stay(
    admin: AdminApp, utils: WorkerUtils, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = hub_of(admin)
    hub.interval = 0.02
    take = hub.sampler.take

    async def fail(*_: object) -> None:
        raise ConnectionRefusedError("the server is down")

    async with reading(admin) as reader:
        await reader.next("overview")
        monkeypatch.setattr(hub.sampler, "take", fail)
        assert "since" in (await reader.next("down")).data
        last = await hub.current(max_age=0)
        assert last is hub.sampler.samples[-1]
        monkeypatch.setattr(hub.sampler, "take", take)
        await reader.next("up")
        assert hub.down_since is None


async def test_many_who_ask_at_once_share_a_result(admin: AdminApp) -> None:
    calls = 0

    async def compute() -> int:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0)  # the others ask meanwhile
        return calls

    hub = hub_of(admin)
    assert await asyncio.gather(*(hub.shared("key", compute) for _ in range(20))) == [1] * 20
    assert await hub.shared("key", compute, max_age=0) == 2
    assert await hub.shared("key", compute, topic="banners") == 2
    hub.publish("jobs")
    assert await hub.shared("key", compute, topic="banners") == 2
    hub.publish("banners")  # those who acted see what they did
    assert await hub.shared("key", compute, topic="banners") == 3


async def test_a_reader_that_is_gone_before_the_first_line_leaves_nothing(admin: AdminApp) -> None:
    async def gone() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def fail(message: object) -> None:
        raise OSError("the connection is closed")

    for send in (Reader().send, fail):
        for _ in range(MAX_STREAMS_OF_USER + 1):
            with suppress(Exception):
                await admin(stream_scope(), gone, send)
    assert hub_of(admin).streams == 0
    async with reading(admin) as reader:
        assert reader.status == 200


async def test_names_that_users_send_do_not_fill_the_memory(admin: AdminApp) -> None:
    async def compute() -> int:
        return 1

    async def fail() -> int:
        raise ValueError

    hub = hub_of(admin)
    await asyncio.gather(*(hub.shared(f"key {number}", compute) for number in range(500)))
    for number in range(500):
        with suppress(ValueError):
            await hub.shared(f"other {number}", fail)
    assert len(hub._shared) <= 2 * MAX_SHARED
    for number in range(500):
        hub.publish(f"job:{number}")
    assert not hub._pending


async def test_a_change_during_the_computation_is_not_lost(admin: AdminApp) -> None:
    hub = hub_of(admin)
    calls = 0

    async def compute() -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            hub.publish("banners")  # the result may have been read before
        return calls

    assert [await hub.shared("key", compute, topic="banners") for _ in range(3)] == [1, 2, 2]


# -- cost ----------------------------------------------------------------------------------------------------

QUIET_COST = 60
BUSY_COST = 150


class Minute:
    """A tab that is open for a minute, in less time: the hub's clock is moved by hand."""

    def __init__(self, app: AdminApp, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = float(int(time.monotonic()))  # seconds add up exactly
        self.hub, self.database = hub_of(app), app.databases[0]
        self.client = client_of(app)
        monkeypatch.setattr(self.hub, "_uptime", lambda: self.now)
        monkeypatch.setattr(self.database.clock, "monotonic", lambda: self.now)

    async def cost(self, page: str, *, busy: bool) -> int:
        """Statements that an open page sends in a minute, after one in which everything was read once."""
        found = await self.client.get(page)
        assert found.status_code == 200, found.text[-500:]
        topics = re.findall('data-topics="([^"]*)"', found.text)[0]
        stream = Stream(topic for topic in topics.split(",") if topic)
        self.hub._streams.add(stream)
        try:
            for _ in range(60):
                await self._second(page, stream, busy=busy)
            before = self.database.meter.total
            for _ in range(60):
                await self._second(page, stream, busy=busy)
            return self.database.meter.total - before
        finally:
            self.hub._streams.discard(stream)
            self.hub._pending.clear()

    async def _second(self, page: str, stream: Stream, *, busy: bool) -> None:
        self.now += 1
        if busy:
            self.hub._hear()
        if self.now - self.hub._sampled_at >= self.hub.pause:
            if busy:
                self._change_counters()
            await self.hub._sample_for_streams()
        self.hub._announce()
        events = await stream.next(0) if stream._pending else []
        if any(event.name == "changed" for event in events):
            answer = await self.client.get(page)
            assert answer.status_code == 200, answer.text[-500:]

    def _change_counters(self) -> None:
        """As if jobs had run since the last sample: the server's own counters come too late for a test."""
        samples = self.hub.sampler.samples
        if samples:
            samples[-1] = replace(samples[-1], counters=(0, 0, 0, len(samples)))


async def test_an_open_tab_costs_little(
    admin: AdminApp, utils: WorkerUtils, workers: Workers, database_url: str, jobs: Jobs,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    gate = Gate()
    await workers.start(
        {"hold": gate},
        connection_string=database_url,
        crontab="0 4 * * * hold ?id=nightly",
        recovery_grace=600,
        heartbeat_interval=60,  # while the clock of the hub stands, nothing else happens
    )
    await utils.add_job("hold", queue_name="q", job_key="k")
    await gate.until_inside(1)
    await jobs.connection.execute("set search_path = graphile_worker")
    pages = [route.path for route in ROUTES if is_page(route)]
    visited = [address for path in pages if (address := await address_in(jobs.connection, path)) is not None]
    minute = Minute(admin, monkeypatch)
    for page in visited:
        for busy, most in ((False, QUIET_COST), (True, BUSY_COST)):
            costs = [await minute.cost(page, busy=busy)]
            while costs[-1] > most and len(costs) < 3:  # timers of the hub may add a refresh
                costs.append(await minute.cost(page, busy=busy))
            assert min(costs) <= most, (page, busy, costs)
