"""Workers of other runtimes: what is known of them, recovery of their jobs by hand, and resilient jobs."""

from __future__ import annotations

from typing import Any

import pytest

from graphile_worker.client import WorkerUtils
from graphile_worker.diagnostics.explanation.decision import explain
from graphile_worker.errors import InvalidArgumentError
from graphile_worker.recovery.registry.workers import condition_of
from graphile_worker.values.schema_name import SchemaName
from recovery.dead import Graveyard
from support.working import SCHEMA, Jobs

RUST, NODE = "graphile_worker_c0ffee", "pool-0123456789abcdef01"
RESILIENT = "infrastructure_resilient"


async def heartbeat(connection: Any, worker_id: str, *, ago: str = "1 second", metadata: str = "{}") -> None:
    await connection.execute(
        f"insert into {SCHEMA}._private_workers (id, last_heartbeat_at, started_at, metadata) "
        f"values ($1, now() - '{ago}'::interval, now() - interval '1 hour', $2)",
        worker_id, metadata,
    )  # fmt: skip


async def explained(connection: Any, utils: WorkerUtils, job_id: int) -> tuple[str, str]:
    job = await utils.jobs.get(job_id)
    assert job is not None
    found = await explain(connection, SchemaName(), job)
    return found.headline, " ".join(found.evidence)


async def test_they_are_listed_with_what_is_known(
    jobs: Jobs, utils: WorkerUtils, graveyard: Graveyard, connection: Any
) -> None:
    first, second = await jobs.add("work"), await jobs.add("work")
    await graveyard.give(RUST, first)
    await graveyard.give(NODE, second)
    await heartbeat(connection, RUST, metadata='{"pid": 42}')
    await heartbeat(connection, "graphile_worker_silent", ago="10 minutes", metadata='{"pid": "no"}')
    await heartbeat(connection, "pool-without-recovery", metadata="[]")
    await graveyard.bury("pool-dead")
    await heartbeat(connection, "pool-dead")
    found = {worker.id: worker for worker in await utils.list_workers()}
    assert {name: worker.runtime for name, worker in found.items()} == {
        "pool-dead": "Python", RUST: "Rust", "graphile_worker_silent": "Rust", NODE: "Node",
        "pool-without-recovery": "Python",
    }  # fmt: skip
    assert (found[RUST].pid, found[RUST].job_ids, found[RUST].jobs_held) == (42, [first], 1)
    assert found[RUST].started_at is not None
    assert found["graphile_worker_silent"].pid is None
    assert condition_of(found[RUST]) == ("alive", "sends heartbeats")
    assert condition_of(found[NODE]) == ("unknown", "sends no heartbeats")
    assert condition_of(found["graphile_worker_silent"]) == ("late", "no heartbeat for 10 min")
    assert found["pool-dead"].is_dead


async def test_without_the_register_they_are_listed_by_their_locks(
    jobs: Jobs, utils: WorkerUtils, graveyard: Graveyard, connection: Any
) -> None:
    await graveyard.give(RUST, await jobs.add("work"))
    await connection.execute(f"drop table {SCHEMA}._private_workers")
    (worker,) = await utils.list_workers()
    assert (worker.id, worker.runtime, condition_of(worker)[0]) == (RUST, "Rust", "unknown")


async def test_an_explanation_names_them(
    jobs: Jobs, utils: WorkerUtils, graveyard: Graveyard, connection: Any
) -> None:
    first, second, ready = await jobs.add("work"), await jobs.add("work"), await jobs.add("work")
    await graveyard.give(RUST, first)
    await graveyard.give(NODE, second)
    await heartbeat(connection, RUST)
    headline, _ = await explained(connection, utils, first)
    assert headline.startswith(f"The Rust worker {RUST} runs it")
    headline, evidence = await explained(connection, utils, second)
    assert NODE in headline
    assert "It is a Node worker." in evidence
    assert f"graphile-worker sweep --worker {NODE}" in evidence
    hour = "now() - interval '1 hour'"
    await connection.execute(f"update {SCHEMA}._private_jobs set run_at = {hour}, created_at = {hour}")
    _, evidence = await explained(connection, utils, ready)
    assert f"The Rust worker {RUST} is running." in evidence
    await connection.execute(
        f"update {SCHEMA}._private_workers set last_heartbeat_at = now() - interval '1h'"
    )
    headline, evidence = await explained(connection, utils, first)
    assert "has sent no heartbeat for 1 h" in headline
    assert f"graphile-worker sweep --worker {RUST}" in evidence


# -- recovery by hand ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("worker_id", [NODE, RUST])
async def test_their_jobs_are_recovered_by_hand(
    jobs: Jobs, utils: WorkerUtils, graveyard: Graveyard, connection: Any, worker_id: str
) -> None:
    mine, other = await jobs.add("work", queue="named"), await jobs.add("work")
    await graveyard.give(worker_id, mine, attempts=3)
    await graveyard.give("pool-alive", other)
    await heartbeat(connection, worker_id, ago="10 minutes")
    before = await jobs.all()
    planned = await utils.workers.recover(worker_id, dry_run=True)
    assert (planned.is_dry_run, planned.recovered[0].returned) == (True, [mine])
    assert await jobs.all() == before
    done = await utils.workers.recover(worker_id)
    assert [(each.id, each.returned) for each in done.recovered] == [(worker_id, [mine])]
    after = {row["id"]: row for row in await jobs.all()}
    assert (after[mine]["attempts"], after[mine]["locked_by"]) == (2, None)
    assert after[other]["locked_by"] == "pool-alive"
    assert [row["locked_by"] for row in await jobs.queues()] == [None]
    assert worker_id not in {worker.id for worker in await utils.list_workers()}


async def test_one_that_sends_heartbeats_is_left_alone_unless_forced(
    jobs: Jobs, utils: WorkerUtils, graveyard: Graveyard, connection: Any
) -> None:
    job_id = await jobs.add("work")
    await graveyard.give(RUST, job_id)
    await heartbeat(connection, RUST)
    with pytest.raises(InvalidArgumentError, match="sends heartbeats, so it is alive"):
        await utils.workers.recover(RUST)
    assert (await jobs.one())["locked_by"] == RUST
    await utils.workers.recover(RUST, force=True)
    assert (await jobs.one())["locked_by"] is None


async def test_one_of_this_package_is_left_to_sweeps(utils: WorkerUtils, graveyard: Graveyard) -> None:
    await graveyard.bury("pool-dead")
    with pytest.raises(InvalidArgumentError, match="sweep recovers it"):
        await utils.workers.recover("pool-dead", force=True)


# -- resilient jobs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("liveness", "flag", "lost_for", "is_recovered"),
    [
        ("heartbeat", RESILIENT, 20.0, False),
        ("heartbeat", RESILIENT, 37.0, True),
        ("heartbeat", "other", 20.0, True),
        ("lock", RESILIENT, 20.0, True),
    ],
)
async def test_a_silent_worker_keeps_resilient_jobs_for_longer(
    jobs: Jobs, utils: WorkerUtils, graveyard: Graveyard, liveness: str, flag: str, lost_for: float,
    is_recovered: bool,
) -> None:  # fmt: skip
    """Three times its grace of 12 s, if only its heartbeats are missing."""
    job_id = (await utils.add_job("work", flags=[flag])).id
    plain = await jobs.add("work")
    await graveyard.bury("pool-lost", lost_for=lost_for, liveness=liveness)
    await graveyard.give("pool-lost", job_id, plain)
    report = await utils.sweep_stale_workers()
    locked = {row["id"] for row in await jobs.all() if row["locked_by"] is not None}
    assert locked == (set() if is_recovered else {job_id, plain})
    assert (0 < report.lost.get("pool-lost", 0.0) <= 36 - lost_for) is not is_recovered
