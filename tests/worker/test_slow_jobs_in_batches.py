"""Slow jobs in held batches: free slots wait neither for them nor until the batches end."""

from __future__ import annotations

from typing import Any

import pytest

from graphile_worker import task
from graphile_worker.hooks.events import JobStarted
from graphile_worker.worker.held.sessions import PATIENCE, SESSIONS
from support.held_load import LOAD, Holding
from support.working import SCHEMA, Gate, Jobs, until

SLOW = 6  # jobs: more than there are sessions for batches
QUICK = 9000

ADD = f"""
select job.id from generate_series(1, {QUICK}) n,
    lateral (select n % ({QUICK} / {SLOW}) = {QUICK} / {SLOW} / 2 as is_slow) kind,
    {SCHEMA}.add_job(case when is_slow then 'slow' else 'quick' end,
        run_at => now() - interval '1 day' + n * interval '1 ms') job
"""


@pytest.fixture
def holding(holding: Holding, monkeypatch: pytest.MonkeyPatch) -> Holding:
    """With the patience of a real worker."""
    monkeypatch.setattr("graphile_worker.worker.held.sessions.PATIENCE", PATIENCE)
    return holding


async def test_batches_with_slow_jobs_leave_no_slot_idle(holding: Holding, jobs: Jobs, gate: Gate) -> None:
    """Every session has a batch with a slow job, for much longer than the test takes."""
    await holding.start({"slow": gate.__call__}, concurrency=2 * SLOW)
    ids = [row["id"] for row in await jobs.connection.fetch(ADD)]
    await gate.until_inside(SLOW)
    await until(lambda: len(holding.of(JobStarted, ids)) == len(ids))
    slow = await holding.rows("slow")
    assert any(row["locked_by"] is not None for row in slow)  # of batches that were ended
    gate.open_all()
    await jobs.until_gone()
    assert len(gate.started) == SLOW


async def test_batches_of_one_lane_leave_no_slot_of_another_idle(
    holding: Holding, jobs: Jobs, gate: Gate
) -> None:
    """What has no session for a batch is fetched in the ordinary way."""

    @task(lane="side")
    async def side() -> None:
        pass

    runner: Any = await holding.start(
        {"slow": gate.__call__, "side": side}, concurrency=SESSIONS, lanes={"side": 2}
    )
    await holding.warm_up(task="side")
    main, batch_sessions = runner._pool._lanes._all[0].source, runner._pool._held_batches._batch_sessions
    batch_sessions.open_all()
    await until(lambda: all(batch_session.is_warm for batch_session in batch_sessions.all))

    def are_taken() -> bool:
        """Whether every session has a batch with a slow job that is not about to end."""
        return all(
            batch_session.batch is not None
            and batch_session.batch.left == 1
            and batch_session.batch.ending is None
            for batch_session in batch_sessions.all
        )

    while not are_taken():
        if gate.inside == SESSIONS:  # a batch has ended, perhaps because a slot was idle
            gate.open_all()
            await jobs.until_gone()
        before = gate.inside
        await holding.add(lambda: jobs.add("slow"))
        await gate.until_inside(before + 1)
        await until(lambda: main.is_quiet or are_taken())  # a further fetch may wait for a session
    held = len(holding.held_fetches)
    await holding.add_load(LOAD, task="side")
    await until(lambda: jobs_are_gone(holding, "side"))
    assert are_taken()
    assert len(holding.held_fetches) == held
    gate.open_all()
    await jobs.until_gone()


async def jobs_are_gone(holding: Holding, name: str) -> bool:
    return not await holding.rows(name)
