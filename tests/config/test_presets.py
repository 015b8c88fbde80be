"""WorkerOptions as presets for workers and clients."""

from __future__ import annotations

import asyncio

import pytest

from graphile_worker import make_worker_utils, run, run_once, task
from graphile_worker.errors import ConfigError
from graphile_worker.hooks import Events
from graphile_worker.options import WorkerOptions


async def test_a_preset_is_built_on_and_serves_clients_and_workers(empty_database_url: str) -> None:
    seen: list[object] = []

    @task
    async def note(payload: object) -> None:
        seen.append(payload)

    house = WorkerOptions(connection_string=empty_database_url, schema="house jobs", max_pool_size=4)
    fast = house.with_values(concurrency=3)
    assert (fast.schema, fast.max_pool_size, fast.concurrency, house.concurrency) == ("house jobs", 4, 3, 1)
    async with make_worker_utils(options=house) as utils:
        await utils.migrate()
        await utils.add_job(note, 1)
    await run_once(options=fast, task_list=[note])
    assert seen == [1]
    # Arguments of the call override the preset.
    await run_once(options=fast, task_list=[note], schema="elsewhere")
    async with make_worker_utils(options=fast, schema="elsewhere") as utils:
        assert await utils.jobs.list() == []
        await utils.add_job(note, 2)
    ended, events = asyncio.Event(), Events()
    events.on("job:success", lambda _: ended.set())
    async with run(options=fast, task_list=[note], schema="elsewhere", events=events):
        await asyncio.wait_for(ended.wait(), 60)
    assert seen == [1, 2]


def test_a_preset_cannot_change_and_refuses_what_it_does_not_know() -> None:
    house = WorkerOptions()
    with pytest.raises(AttributeError, match="immutable"):
        house.concurrency = 2  # type: ignore[misc]
    with pytest.raises((ConfigError, TypeError), match="concurency"):
        house.with_values(concurency=2)  # type: ignore[call-arg]


def test_a_printed_preset_hides_the_password() -> None:
    preset = WorkerOptions(connection_string="postgres://me:hidden@db.example/shop")
    assert "hidden" not in repr(preset)
    assert "hidden" not in str(preset)
