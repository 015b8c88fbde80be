"""Where nothing is held: connections and lanes that rule it out. The jobs run all the same.

Which options rule it out is in `test_hold_policy`.
"""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from graphile_worker import Lane, Limit, run_once, task
from graphile_worker.testing.results import EventRecorder
from support.held_load import LOAD, Holding
from support.working import Jobs


@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, True), ({"max_pool_size": 8}, True), ({"max_pool_size": 7}, False), ({"hold": 0}, False)],
    ids=["by default", "just enough connections", "few connections", "hold"],
)
async def test_whether_jobs_are_held(holding: Holding, options: dict[str, Any], expected: bool) -> None:
    await holding.start({}, is_warm=expected, concurrency=10, **options)
    for _ in range(0 if expected else 3):
        await holding.add_load(LOAD)
        await holding.jobs.until_gone()
    assert bool(holding.held_fetches) is expected


async def test_lanes_with_fair_turns_or_limits_hold_nothing_beside_one_that_does(holding: Holding) -> None:
    @task(lane="fair")
    async def turn() -> None:
        pass

    @task(limit=Limit("api", concurrency=5))
    async def call() -> None:
        pass

    lanes = [Lane("fair", order="fair", concurrency=10)]
    await holding.start({"turn": turn, "call": call}, concurrency=10, lanes=lanes)
    held = len(holding.held_fetches)
    for name in ("turn", "call"):
        for _ in range(2):
            await holding.add_load(LOAD, task=name)
            await holding.jobs.until_gone()
    assert len(holding.held_fetches) == held


async def test_a_single_run_on_a_callers_connection_holds_nothing(
    database_url: str, jobs: Jobs, recorder: EventRecorder, never_slow: None
) -> None:
    async def step() -> None:
        pass

    await jobs.add_many("step", 2 * LOAD)
    connection = await asyncpg.connect(database_url)
    try:
        await run_once(pg_pool=connection, task_list={"step": step}, events=recorder.events)
    finally:
        await connection.close()
    assert await jobs.count() == 0
    assert "held" not in {getattr(event, "kind", None) for event in recorder.seen}
