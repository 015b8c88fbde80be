"""Held batches of several lanes: each runs its own jobs, in their order, with the sessions of the pool."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from graphile_worker import task
from graphile_worker.hooks.events import JobSucceeded
from graphile_worker.values.flags import NO_RULES
from support.held_load import LOAD, Holding
from support.working import SCHEMA, Jobs, until

COUNT = 300
LANES = ("main", "left", "right")


class Lanes:
    """A worker with three lanes of one slot each, and a short task and one that is watched in each."""

    def __init__(self, holding: Holding) -> None:
        self.holding = holding
        self.order: dict[str, list[tuple[int, int]]] = {name: [] for name in LANES}
        """Priority and number of the watched jobs as they started, by lane."""

    async def start(self) -> None:
        tasks: dict[str, Any] = {}
        for name in LANES:
            lane: dict[str, Any] = {} if name == "main" else {"lane": name}
            tasks[f"{name}_quick"] = task(**lane)(_quick)
            tasks[f"{name}_step"] = task(**lane)(self._step(name))
        await self.holding.start(tasks, concurrency=1, lanes={"left": 1, "right": 1})
        for name in LANES:
            await self.holding.warm_up(task=f"{name}_quick")

    def _step(self, name: str) -> Callable[[Any], Awaitable[None]]:
        async def step(payload: Any) -> None:
            self.order[name].append((payload["priority"], payload["n"]))

        return step

    async def add(self) -> list[int]:
        """Watched jobs of all lanes by turns, with three priorities, behind a load for each lane."""
        connection = self.holding.jobs.connection
        async with connection.transaction():
            for name in LANES:
                await self.holding.add_load(LOAD, task=f"{name}_quick")
            rows = await connection.fetch(
                f"select job.id from generate_series(0, $1::integer - 1) n, unnest($2::text[]) lane, "
                f"{SCHEMA}.add_job(lane || '_step', json_build_object('n', n, 'priority', n % 3), "
                "run_at => now() + n * interval '1 microsecond', priority => n % 3) job",
                COUNT,
                list(LANES),
            )
        return [row["id"] for row in rows]


async def _quick() -> None:
    pass


@pytest.fixture
def lanes(holding: Holding) -> Lanes:
    return Lanes(holding)


async def test_each_lane_runs_its_jobs_once_by_priority(lanes: Lanes, jobs: Jobs) -> None:
    await lanes.start()
    held = len(lanes.holding.held_fetches)
    ids = await lanes.add()
    await jobs.until_gone()
    assert len(lanes.holding.held_fetches) > held
    expected = sorted((n % 3, n) for n in range(COUNT))
    assert lanes.order == dict.fromkeys(LANES, expected)
    await until(lambda: sorted(lanes.holding.of(JobSucceeded, ids)) == sorted(ids))


async def test_a_lane_does_not_go_on_where_the_batch_of_another_lane_ended(
    holding: Holding, jobs: Jobs
) -> None:
    """Jobs that were added together are continued by id, and those of two tasks come by turns."""
    runner: Any = await holding.start({}, concurrency=10)
    rows = await jobs.connection.fetch(
        "select job.id, job.task_id, lane from generate_series(1, $1::integer) n, "
        "lateral (select case n % 2 when 1 then 'left' else 'right' end as lane) lanes, "
        f"{SCHEMA}.add_job(lane) job",
        2 * COUNT,
    )
    held_batches = runner._pool._held_batches
    for name in ("left", "right"):
        own = [row for row in rows if row["lane"] == name]
        await held_batches.free_session({}, lambda: False)
        fetched = await held_batches.fetch(
            tasks={own[0]["task_id"]: name}, limit=COUNT, flags=NO_RULES, now=None
        )
        assert sorted(job.id for job in fetched) == [row["id"] for row in own]
