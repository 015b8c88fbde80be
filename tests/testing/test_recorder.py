"""EventRecorder."""

from __future__ import annotations

import asyncio

import pytest

from graphile_worker.hooks import Events
from graphile_worker.hooks.events import PoolCreated, PoolReleased, Stopped
from graphile_worker.testing.results import EventRecorder


async def test_it_keeps_events_in_order_and_by_kind() -> None:
    recorder = EventRecorder()
    for event in (PoolCreated(pool_id="a"), Stopped(), PoolCreated(pool_id="b")):
        recorder.events.emit(event)
    assert recorder.names == ["pool:create", "stop", "pool:create"]
    assert [event.pool_id for event in recorder.of(PoolCreated)] == ["a", "b"]
    assert recorder.count(Stopped) == 1
    recorder.clear()
    assert recorder.seen == []


async def test_it_waits_for_the_event_that_is_asked_for() -> None:
    recorder = EventRecorder(Events())
    recorder.events.emit(PoolCreated(pool_id="a"))
    waiting = asyncio.create_task(recorder.wait_for(PoolCreated, count=2))
    matching = asyncio.create_task(recorder.wait_for(PoolCreated, matching=lambda e: e.pool_id == "c"))
    await asyncio.sleep(0)
    assert not waiting.done()
    for pool_id in "bc":
        recorder.events.emit(PoolCreated(pool_id=pool_id))
    assert (await waiting).pool_id == "b"
    assert (await matching).pool_id == "c"


async def test_a_wait_that_times_out_lists_the_events_so_far() -> None:
    recorder = EventRecorder()
    recorder.events.emit(Stopped())
    with pytest.raises(TimeoutError, match=r"PoolReleased.*stop"):
        await recorder.wait_for(PoolReleased, timeout=0.01)  # timing: must run out


async def test_a_closed_recorder_sees_no_more() -> None:
    recorder = EventRecorder()
    recorder.close()
    recorder.events.emit(Stopped())
    assert recorder.seen == []
