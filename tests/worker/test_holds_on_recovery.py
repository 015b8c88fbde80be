"""Held batches and `on_recovery`: a job about whose recovery the application decides is never held."""

from __future__ import annotations

from graphile_worker.hooks import Hooks
from graphile_worker.hooks.events import PoolJobsFetched
from graphile_worker.options import MOST_HOLD
from graphile_worker.testing.recorder import EventRecorder
from support.working import SELDOM, Jobs, Workers

ROUND = 4500  # jobs: more than one fetch takes


async def quick() -> None: ...


async def test_nothing_is_held_while_there_is_an_interceptor_for_recovered_jobs(
    never_slow: None, jobs: Jobs, workers: Workers
) -> None:
    async def run_round(recorder: EventRecorder) -> bool:
        """Whether some of the jobs so far were held."""
        await jobs.add_many("quick", ROUND)
        await jobs.until_gone()
        return any(event.kind == "held" and event.count for event in recorder.of(PoolJobsFetched))

    recorder = EventRecorder()
    hooks = Hooks(events=recorder.events)
    runner = await workers.start({"quick": quick}, hooks=hooks, hold=MOST_HOLD, prefetch=SELDOM)
    rounds = 1
    while not await run_round(recorder):
        rounds += 1
    hooks.on_recovery(lambda job: None)  # while it runs: the worker has its sessions for held batches
    recorder.seen.clear()
    for _ in range(3):
        assert not await run_round(recorder)
    await workers.stop(runner)

    recorder = EventRecorder()
    hooks = Hooks(events=recorder.events)
    hooks.on_recovery(lambda job: None)
    await workers.start({"quick": quick}, hooks=hooks, hold=MOST_HOLD, prefetch=SELDOM)
    for _ in range(2 * rounds):
        assert not await run_round(recorder)
