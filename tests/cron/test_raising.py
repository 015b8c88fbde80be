"""Whatever code of the application raises, recurring jobs are added when their next minute comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from cron.conftest import Station
from graphile_worker.cron import CronItem, TimestampDigest, parse_cron_items
from graphile_worker.hooks.events import Event
from support.trap import FAULTS, Trap, TrapWatcher
from support.working import until

BY_TICKS = ["match", "before_add", "before_add, async", "watch_adds before", "watch_adds after"]


@pytest.fixture
def trap() -> Trap:
    return Trap()


@pytest.fixture
def cron(station: Callable[..., Station], trap: Trap) -> Station:
    def match(digest: TimestampDigest) -> bool:
        trap("match")
        return True

    cron = station(
        parse_cron_items([CronItem(task="a", match=match), CronItem(task="b", match="* * * * *")]),
        "2021-01-01 01:00:30",
    )

    async def before_add(spec: Any) -> None:
        await asyncio.sleep(0)
        trap("before_add, async")

    cron.hooks.before_add(before_add)
    cron.hooks.before_add(lambda spec: trap("before_add"))
    cron.hooks.watch_adds(TrapWatcher(trap, "watch_adds"))  # type: ignore[arg-type]
    cron.hooks.events.on(Event, lambda event: trap(event.name))
    return cron


async def test_the_next_minute_is_added_whatever_was_raised(cron: Station, trap: Trap) -> None:
    trap.set(SystemExit, "cron:starting", "cron:started")
    await cron.start()
    minute = 0
    for fault in FAULTS:
        for hook in [*BY_TICKS, "cron:schedule", "cron:scheduled", "jobs:add"]:
            minute += 1
            trap.set(fault, hook)
            await cron.set(f"01:{minute:02}:01")
            assert trap.unsprung == [], (fault, hook)
    minute += 1
    await cron.set(f"01:{minute:02}:01")
    tasks = [job["task"] for job in await cron.jobs() if job["run_at"].minute == minute]
    assert sorted(tasks) == ["a", "b"]
    # What observers and watchers raise costs nothing; a failed match or interceptor its own job, once.
    added = [(job["task"], job["run_at"].minute) for job in await cron.jobs()]
    assert len(set(added)) == len(added) == 2 * minute - 3 * len(FAULTS)


async def test_a_scheduler_that_is_cancelled_by_others_goes_on(cron: Station) -> None:
    await cron.start()
    (task,) = [each for each in asyncio.all_tasks() if each.get_name() == "graphile-worker cron"]
    task.cancel()
    await until(lambda: task.done())
    await cron.clock.until_sleeping()
    await cron.set("01:01:01")
    assert sorted(job["task"] for job in await cron.jobs()) == ["a", "b"]
