"""Why ready jobs are not run: the doctor names the reason of every task."""

from __future__ import annotations

from typing import Any

import pytest

from graphile_worker.config import resolve_settings
from graphile_worker.database.statements.inspection import get_job, ready_tasks
from graphile_worker.diagnostics.examine import examine
from graphile_worker.diagnostics.explanation.decision import explain
from graphile_worker.diagnostics.finding import Finding
from graphile_worker.recovery.registry.workers import list_workers
from graphile_worker.values.flags import FlagDescription
from graphile_worker.values.schema_name import SchemaName
from recovery.dead import QUICK, Graveyard
from support.working import SCHEMA, SELDOM, Gate, Jobs, Workers, until

OPTIONS = QUICK | {"sweep_interval": SELDOM, "prefetch": 0}
OLD = "now() - interval '8 minutes'"


async def waiting(url: str) -> list[Finding]:
    findings = await examine(resolve_settings({"connection_string": url}, {}))
    return [finding for finding in findings if finding.check == "waiting"]


async def make_old(jobs: Jobs) -> None:
    """Every job became ready some minutes ago."""
    await jobs.connection.execute(f"update {SCHEMA}._private_jobs set run_at = {OLD}, created_at = {OLD}")


@pytest.fixture
def graveyard(connection: Any) -> Graveyard:
    return Graveyard(connection)


async def test_without_a_worker_every_task_is_named_and_the_rest_is_counted(
    jobs: Jobs, database_url: str
) -> None:
    for number in range(8):
        await jobs.add(f"task {number}")
    await make_old(jobs)
    (found,) = await waiting(database_url)
    assert found.severity == "warning"
    assert found.summary == (
        "no worker is running; waiting: task 0 (1 job, 8 min), task 1 (1 job, 8 min), "
        "task 2 (1 job, 8 min), task 3 (1 job, 8 min), task 4 (1 job, 8 min) and 3 more"
    )


async def test_workers_of_other_runtimes_do_not_say_what_they_have(
    jobs: Jobs, database_url: str, graveyard: Graveyard
) -> None:
    held, _ = await jobs.add("work"), await jobs.add("work")
    await make_old(jobs)
    await graveyard.give("pool-of-node", held)
    (found,) = await waiting(database_url)
    assert found.summary == "no Python worker is running; waiting: work (1 job, 8 min)"
    assert "other runtimes" in found.meaning


async def test_each_reason_is_found_beside_the_others(
    jobs: Jobs, database_url: str, workers: Workers, connection: Any
) -> None:
    gate = Gate()
    await jobs.add("slow", {"n": 1}, queue="customers", priority=-1)
    await workers.start({"slow": gate, "typed": Gate()}, concurrency=1, forbidden_flags=["paused"], **OPTIONS)
    await gate.until_inside(1)
    await jobs.add("slow", {"n": 2})
    await jobs.add("typd")
    await jobs.add("typd")
    await jobs.add("typed", flags=["paused", "night"])
    await jobs.add("queued", queue="customers")
    await make_old(jobs)

    async def is_reported() -> bool:
        row = await connection.fetchrow(f"select running from {SCHEMA}._private_py_workers")
        return row["running"] not in (None, "[]")

    await until(is_reported)
    found = {finding.summary: finding for finding in await waiting(database_url)}
    assert set(found) == {
        "all slots of the workers with the task are busy; waiting: slow (1 job, 8 min)",
        "no running worker has the task; waiting: typd (2 jobs, 8 min)",
        "the workers with the task refuse the flags of jobs; waiting: typed (1 job, 8 min)",
        "the queue is busy; waiting: queued (1 job, 8 min)",
    }
    slow, typd, typed, queued = (
        next(finding for summary, finding in found.items() if f"{task} (" in summary)
        for task in ("slow", "typd", "typed", "queued")
    )
    assert "1 of 1 slots busy" in slow.meaning
    assert "No running worker has the task typd; did you mean 'typed'?" in typd.meaning
    assert "The worker with the task refuses the flags night, paused." in typed.meaning
    assert "forbids paused." in typed.meaning
    assert "graphile-worker list --task typd" in typd.advice
    assert queued.severity == "info"
    assert "The queue customers is busy on " in queued.meaning
    gate.open()


async def test_a_job_that_no_running_worker_takes_by_its_flags(
    jobs: Jobs, database_url: str, workers: Workers, connection: Any
) -> None:
    """Both workers say their rules, and a function says that it may change them."""
    rules: list[dict[str, Any]] = [
        {"accepted_flags": ["gpu"]},
        {"flag_allowlist": ["eu"], "forbidden_flags": ["night"]},
    ]
    runners = [await workers.start({"work": Gate()}, **OPTIONS, **each) for each in rules]

    async def evidence(flags: list[str]) -> tuple[str, str]:
        await connection.execute(f"delete from {SCHEMA}._private_jobs")
        job_id = await jobs.add("work", flags=flags)
        await make_old(jobs)
        (found,) = await waiting(database_url)
        job = await get_job(connection, SchemaName(), job_id)
        assert job is not None
        explanation = await explain(connection, SchemaName(), job)
        assert explanation.kind == "flags"
        assert explanation.headline in found.meaning
        assert all(line in found.meaning for line in explanation.evidence)
        return explanation.headline, " ".join(explanation.evidence)

    headline, why = await evidence(["night", "us"])
    assert headline == "All 2 workers with the task refuse the flags night, us."
    assert "takes only jobs with the flag gpu." in why
    assert "forbids night and does not allow night, us." in why
    await workers.stop(runners.pop())
    assert (await evidence(["night"]))[0] == "The worker with the task refuses the flag night."
    assert (await evidence([]))[0] == "The worker with the task refuses jobs without flags."
    assert (await evidence(["py:keep"]))[0] == "The worker with the task refuses jobs without flags."
    await workers.start({"work": Gate()}, **OPTIONS, accepted_flags=lambda: ["gpu"])
    headline, why = await evidence(["night"])
    assert headline == "The workers with the task may refuse the flag night."
    assert "do not say which flags they refuse" in why
    assert "takes only jobs with the flag gpu." in why
    described = [pool.flag_rules for pool in await list_workers(connection, SchemaName())]
    assert described == [
        FlagDescription((), ("gpu",)), FlagDescription(changing=("accepted_flags",)),
    ]  # fmt: skip


async def test_a_fresh_job_behind_a_busy_queue_does_not_make_the_task_slow(
    jobs: Jobs, database_url: str, graveyard: Graveyard
) -> None:
    running, _ = await jobs.add("work", queue="a"), await jobs.add("work", queue="a")
    await make_old(jobs)
    await graveyard.give("pool-of-node", running)
    await jobs.add("work")
    (found,) = await waiting(database_url)
    assert found.summary == (
        "the queue is locked, and no job of it is known to run; waiting: work (2 jobs, 8 min)"
    )


async def test_a_locked_queue_is_named_with_the_pool_that_holds_it(
    jobs: Jobs, database_url: str, graveyard: Graveyard, connection: Any
) -> None:
    first, second = await jobs.add("other", queue="a"), await jobs.add("other", queue="b")
    await make_old(jobs)
    await graveyard.give("pool-z", first)
    await graveyard.give("pool-y", second)
    waiting_for_b, _ = await jobs.add("work", queue="b"), await jobs.add("work", queue="a")
    await make_old(jobs)
    await connection.execute(
        f"update {SCHEMA}._private_jobs set run_at = run_at - interval '1 second', "
        "created_at = created_at - interval '1 second' where id = $1",
        waiting_for_b,
    )
    (found,) = await waiting(database_url)
    assert "The queue b is locked by pool-y, and no job of it is known to run." in found.meaning


async def test_without_the_table_of_workers_the_reason_is_unknown(
    jobs: Jobs, database_url: str, connection: Any
) -> None:
    await jobs.add("work")
    await make_old(jobs)
    await connection.execute(f"drop table {SCHEMA}._private_py_workers")
    (found,) = await waiting(database_url)
    assert found.summary == "nothing tells which workers are running; waiting: work (1 job, 8 min)"
    assert "`graphile-worker migrate`" in found.advice


async def test_jobs_of_many_priorities_are_found_and_scheduled_ones_are_not(
    jobs: Jobs, connection: Any
) -> None:
    for priority in (-3, 0, 7):
        await jobs.add(f"at {priority}", priority=priority)
    await make_old(jobs)
    await connection.execute(
        f"select {SCHEMA}.add_job('later', run_at => now() + interval '1 hour', priority => 0)"
    )
    found = await ready_tasks(connection, SchemaName())
    assert [(task.task_identifier, task.jobs, task.has_more) for task in found] == [
        ("at -3", 1, False), ("at 0", 1, False), ("at 7", 1, False)
    ]  # fmt: skip
    assert found[0].age == pytest.approx(480, abs=60)
