"""The event of a fetch."""

from __future__ import annotations

from typing import Any

import pytest

from graphile_worker.hooks.events import JobSucceeded, PoolJobsFetched
from graphile_worker.testing.results import EventRecorder
from support.working import Jobs, Workers, until_listening


async def test_each_fetch_is_an_event_with_its_size_duration_and_kind(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    async def step() -> None:
        pass

    runner = await workers.start({"step": step}, events=recorder.events, concurrency=3, prefetch=0)
    await until_listening(recorder, jobs.connection)
    await jobs.add("step")
    await recorder.wait_for(JobSucceeded)
    (first,) = found_some(recorder)
    assert (first.pool_id, first.count, first.limit) == (runner.pool_id, 1, 3)
    assert first.kind in ("announced", "plain")
    assert 0 < first.seconds < 60
    await jobs.add("step", queue="a")
    await recorder.wait_for(JobSucceeded, count=2)
    assert [event.kind for event in found_some(recorder)] == [first.kind, "whole"]


def found_some(recorder: EventRecorder) -> list[PoolJobsFetched]:
    return [event for event in recorder.of(PoolJobsFetched) if event.count]


@pytest.mark.parametrize("options", [{}, {"local_queue": {"size": 4}}])
async def test_both_sources_have_it(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, options: dict[str, Any]
) -> None:
    async def step() -> None:
        pass

    await jobs.add_many("step", 10)
    await workers.once({"step": step}, events=recorder.events, **options)
    assert sum(event.count for event in recorder.of(PoolJobsFetched)) == 10
