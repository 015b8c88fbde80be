"""Where nothing is held: options, lanes and connections that rule it out. The jobs run all the same."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from graphile_worker import Lane, Limit, run_once, task
from graphile_worker.testing.recorder import EventRecorder
from support.held_load import LOAD, Holding
from support.working import Jobs

OPTIONS: dict[str, dict[str, Any]] = {
    "hold": {"hold": 0},
    "prefetch": {"prefetch": 0},
    "local queue": {"local_queue": {"size": 100}, "prefetch": None},
    "pooler": {"prepared_statements": False},
    "flags from a function": {"forbidden_flags": lambda: []},
    "few connections": {"max_pool_size": 7},
    "no recovery": {"recovery": False},
}


async def has_held(holding: Holding, **options: Any) -> bool:
    """Run a load three times over; whether some of it was held."""
    options = {key: value for key, value in options.items() if value is not None}
    await holding.start({}, is_warm=False, **options)
    for _ in range(3):
        await holding.add_load(LOAD if options.get("prefetch") != 0 else 300)
        await holding.jobs.until_gone()
    return bool(holding.held_fetches)


@pytest.mark.parametrize("options", [{}, {"max_pool_size": 8}], ids=["by default", "just enough connections"])
async def test_jobs_are_held(holding: Holding, options: dict[str, Any]) -> None:
    assert await has_held(holding, concurrency=10, **options)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
async def test_nothing_is_held(holding: Holding, options: dict[str, Any]) -> None:
    if callable(options.get("forbidden_flags")):
        await holding.start({}, is_warm=False, concurrency=10, **options)
        await holding.add_load(300)
        await holding.jobs.until_gone()
        assert holding.held_fetches == []
        return
    merged = {"concurrency": 10, **options}
    if "local_queue" in options:
        merged["prefetch"] = None
    assert not await has_held(holding, **merged)


async def test_a_lane_with_fair_turns_holds_nothing(holding: Holding) -> None:
    @task(lane="fair")
    async def turn() -> None:
        pass

    await holding.start({"turn": turn}, is_warm=False, lanes=[Lane("fair", order="fair", concurrency=10)])
    for _ in range(2):
        await holding.add_load(LOAD, task="turn")
        await holding.jobs.until_gone()
    assert holding.held_fetches == []


async def test_jobs_with_a_limit_are_not_held(holding: Holding) -> None:
    @task(limit=Limit("api", concurrency=5))
    async def call() -> None:
        pass

    await holding.start({"call": call}, is_warm=False, concurrency=10)
    for _ in range(2):
        await holding.add_load(LOAD, task="call")
        await holding.jobs.until_gone()
    assert holding.held_fetches == []


async def test_a_single_run_on_a_callers_connection_holds_nothing(
    database_url: str, jobs: Jobs, recorder: EventRecorder, never_slow: None
) -> None:
    async def step() -> None:
        pass

    await jobs.add_many("step", LOAD)
    connection = await asyncpg.connect(database_url)
    try:
        await run_once(pg_pool=connection, task_list={"step": step}, events=recorder.events)
    finally:
        await connection.close()
    assert await jobs.count() == 0
    assert "held" not in {getattr(event, "kind", None) for event in recorder.seen}
