"""Held jobs that are released: an idle worker that found their rows locked hears of them."""

from __future__ import annotations

import asyncio

from graphile_worker.testing.results import EventRecorder
from support.held_load import Holding
from support.working import Gate, Jobs, Workers, until, until_listening


async def test_an_idle_worker_takes_released_jobs_without_a_poll(
    holding: Holding, jobs: Jobs, gate: Gate, workers: Workers
) -> None:
    runner = await holding.start({"step": gate.__call__}, concurrency=2)
    await holding.add(lambda: jobs.add_many("step", 20))
    await gate.until_inside(2)
    assert holding.last_fetch == "held"
    elsewhere: list[int] = []
    recorder = EventRecorder()
    await workers.start(
        {"step": lambda payload, helpers: elsewhere.append(helpers.job.id)}, events=recorder.events
    )
    await until_listening(recorder, jobs.connection)
    assert elsewhere == []
    stopping = asyncio.create_task(runner.stop())
    await until(lambda: len(elsewhere) == 18)
    gate.open_all()
    await stopping
    await jobs.until_gone()  # the other worker may still write
