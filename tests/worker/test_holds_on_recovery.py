"""Held batches and `on_recovery`: a job about whose recovery the application decides is never held."""

from __future__ import annotations

from graphile_worker.hooks import Hooks
from graphile_worker.testing.results import EventRecorder
from support.held_load import LOAD, Holding
from support.working import Jobs, Workers


async def test_nothing_is_held_while_there_is_an_interceptor_for_recovered_jobs(
    never_slow: None, jobs: Jobs, workers: Workers
) -> None:
    for is_there_from_the_start in (False, True):
        hooks = Hooks()
        if is_there_from_the_start:
            hooks.on_recovery(lambda job: None)
        holding = Holding(jobs, workers, EventRecorder(hooks.events))
        runner = await holding.start({}, is_warm=not is_there_from_the_start, hooks=hooks, events=None)
        if not is_there_from_the_start:  # the worker has its sessions for held batches
            hooks.on_recovery(lambda job: None)
        held = len(holding.held_fetches)
        for _ in range(3):
            await holding.add_load(LOAD)
            await jobs.until_gone()
        assert len(holding.held_fetches) == held
        await workers.stop(runner)
