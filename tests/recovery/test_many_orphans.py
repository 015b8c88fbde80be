"""A dead worker may have had thousands of jobs: a sweep recovers them with a few statements."""

from __future__ import annotations

from typing import Any

from graphile_worker.hooks import Hooks
from graphile_worker.recovery.sweep import Sweep
from graphile_worker.values.schema_name import SchemaName
from recovery.dead import Graveyard
from support.working import Jobs

ORPHANS = 5_000
DEATHS = 3  # the second and later ones update the counters of recoveries
MOST_STATEMENTS = 40  # of a sweep, whatever the number of jobs


async def test_the_jobs_of_a_dead_worker_are_recovered_together(
    jobs: Jobs, graveyard: Graveyard, connection: Any
) -> None:
    seen: list[int] = []
    hooks = Hooks()
    hooks.on_recovery(lambda job: seen.append(job.id))
    sweep = Sweep(lambda work: work(connection), SchemaName(), hooks)
    ids = await jobs.add_many("work", ORPHANS)
    sent: list[Any] = []
    for death in range(1, DEATHS + 1):
        pool_id = f"pool-{death}"
        await graveyard.bury(pool_id)
        await graveyard.give(pool_id, *ids)
        with connection.query_logger(sent.append):
            report = await sweep()
        assert report.recovered[0].returned == ids
        assert len(sent) <= death * MOST_STATEMENTS
    assert seen == ids * DEATHS
    # Only the first counts: after it, jobs count that are known to have started.
    assert set((await graveyard.recoveries()).values()) == {1}
