"""Memory and load of a worker's process: measured and sent with heartbeats."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from graphile_worker.client import WorkerUtils
from graphile_worker.database.statements.inspection import get_job
from graphile_worker.recovery.registry import load
from graphile_worker.recovery.registry.load import Load, LoadMeter, memory_of
from graphile_worker.recovery.registry.workers import WorkerSummary
from recovery.dead import QUICK
from support.working import SCHEMA, SELDOM, Gate, Jobs, Workers, until

OPTIONS = QUICK | {"sweep_interval": SELDOM}
ON_LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


async def work() -> None: ...


async def until_listed(utils: WorkerUtils, condition: Callable[[WorkerSummary], bool]) -> WorkerSummary:
    """The only worker, once the condition holds."""
    found: list[WorkerSummary] = []

    async def is_so() -> bool:
        found[:] = await utils.workers.list()
        return len(found) == 1 and condition(found[0])

    await until(is_so)
    return found[0]


@ON_LINUX
def test_memory_and_processor_time_are_those_of_the_process() -> None:
    meter = LoadMeter(lambda: 0.25)
    first = meter.measure()
    assert first.cpu is None  # over no time
    assert first.loop_delay == 0.25
    kept = b"x" * 50_000_000
    end = time.monotonic() + 2 * load.SHORTEST
    while time.monotonic() < end:
        pass
    second = meter.measure()
    assert second.cpu is not None
    assert 0 < second.cpu <= (os.cpu_count() or 1) + 1
    assert (second.memory or 0) - (first.memory or 0) > len(kept) // 2
    again = meter.measure()
    assert again.cpu == second.cpu  # too soon to measure again


@ON_LINUX
def test_child_processes_count_together() -> None:
    before = LoadMeter().measure().child_memory
    if before is None:
        pytest.skip("this kernel does not list child processes")
    with subprocess.Popen([sys.executable, "-c", "print(1); input()"], stdin=-1, stdout=-1) as child:
        assert child.stdout is not None
        child.stdout.readline()
        after = LoadMeter().measure().child_memory
        assert after is not None
        assert after - before >= (memory_of(child.pid) or 0) // 2 > 0
        child.communicate()


def test_a_system_that_says_nothing_leaves_it_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise FileNotFoundError

    monkeypatch.setattr("builtins.open", refuse)
    monkeypatch.setattr(os, "stat", refuse)
    measured = LoadMeter().measure()
    assert measured.child_memory is None
    assert memory_of(1) is None


async def test_heartbeats_carry_it_beside_the_other_reports(
    workers: Workers, utils: WorkerUtils, jobs: Jobs
) -> None:
    gate = Gate()
    await workers.start({"work": gate}, **OPTIONS)
    worker = await until_listed(utils, lambda worker: worker.load is not None and worker.load.cpu is not None)
    assert worker.load is not None
    assert worker.load.memory is None or worker.load.memory > 1_000_000
    worker = await until_listed(utils, lambda worker: worker.clock is not None and worker.load is not None)
    assert worker.is_listening is not None
    await utils.add_job("work")
    await gate.until_inside(1)
    await until_listed(utils, lambda worker: worker.load is not None and worker.load.loop_delay is not None)
    gate.open()
    await jobs.until_gone()


async def test_it_costs_no_statement_of_its_own(
    workers: Workers, utils: WorkerUtils, jobs: Jobs, connection: Any
) -> None:
    """An idle worker changes its row once for each heartbeat."""
    await connection.execute("create table changes (seen_at timestamptz)")
    await connection.execute(
        "create function count_change() returns trigger language plpgsql as "
        "$$ begin insert into changes values (new.last_seen_at); return new; end $$"
    )
    await workers.start({"work": work}, **OPTIONS)
    await until_listed(utils, lambda worker: worker.clock is not None and worker.load is not None)
    await until_listed(utils, lambda worker: bool(worker.is_listening) and worker.jobs_held == 0)
    seen: set[Any] = set()

    async def beats(count: int) -> None:
        seen.clear()

        async def enough() -> bool:
            seen.update(worker.last_seen_at for worker in await utils.workers.list())
            return len(seen) > count

        await until(enough)

    await beats(2)  # the last news is reported
    await connection.execute(
        f"create trigger count_changes before update on {SCHEMA}._private_py_workers "
        "for each row execute function count_change()"
    )
    await beats(5)
    changes = await connection.fetchval(
        "select max(n) from (select count(*) n from changes group by seen_at) each"
    )
    assert changes == 1


async def test_a_row_without_it_is_read(utils: WorkerUtils, connection: Any) -> None:
    """As an earlier version writes it; other runtimes have no row."""
    await connection.execute(
        f"insert into {SCHEMA}._private_py_workers "
        "(id, host, pid, version, tasks, concurrency, liveness, heartbeat_interval, grace, state) values "
        "('old', 'here', 1, '0', '{}', 2, 'heartbeat', '1 hour', '1 hour', '{\"is_listening\": true}')"
    )
    job = await utils.add_job("work")
    await connection.execute(
        f"update {SCHEMA}._private_jobs set locked_by = 'node', locked_at = now() where id = $1", job.id
    )
    assert await get_job(connection, utils.schema, job.id) is not None
    found = {worker.id: worker.load for worker in await utils.workers.list()}
    assert found == {"old": None, "node": None}
    await connection.execute(
        f'update {SCHEMA}._private_py_workers set state = \'{{"load": {{"memory": 5, "later": 1}}}}\''
    )
    (worker, _) = await utils.workers.list()
    assert worker.load == Load(memory=5)
