"""The hold guard with real processes: a death keeps other pools from holding batches, a goodbye does not."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from graphile_worker.recovery.held_batches import _runs_here
from graphile_worker.testing.results import EventRecorder
from recovery.dead import QUICK, QUICK_ENVIRONMENT, Graveyard
from support.held_load import LOAD, Holding, never_slow
from support.worker_process import Start, WorkerProcess
from support.working import SCHEMA, SELDOM, Jobs, Workers, until

TASKS = Path(__file__).with_name("short_tasks.py")
LOADS = 3

StartNeighbour = Callable[[], Awaitable[WorkerProcess]]


@pytest.fixture
def holding(
    monkeypatch: pytest.MonkeyPatch, jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> Holding:
    """A worker in the process of the test."""
    never_slow(monkeypatch)
    return Holding(jobs, workers, recorder)


@pytest.fixture
def start_neighbour(start: Start, database_url: str, graveyard: Graveyard) -> StartNeighbour:
    """Starts another worker, which has other tasks, as a process; it has its lock."""

    async def start_and_wait() -> WorkerProcess:
        process = start("--log-level", "warning", url=database_url, tasks=TASKS, **QUICK_ENVIRONMENT)

        async def has_lock() -> bool:
            rows = (await graveyard.workers()).values()
            return any(row["pid"] == process.pid and row["backend_pid"] is not None for row in rows)

        await until(has_lock)
        return process

    return start_and_wait


async def held(holding: Holding) -> bool:
    """Run a load; whether some of it was held."""
    before = len(holding.held_fetches)
    await holding.add_load(LOAD)
    await holding.jobs.until_gone()
    return len(holding.held_fetches) > before


async def last_death(connection: Any) -> float:
    """Seconds since the last death that was swept."""
    return await connection.fetchval(
        f"select date_part('epoch', now()) - date_part('epoch', died_at) from {SCHEMA}._private_py_last_death"
    )


async def forget_deaths(connection: Any) -> None:
    """As after the guard time."""
    await connection.execute(f"update {SCHEMA}._private_py_last_death set died_at = '-infinity'")


async def until_swept(graveyard: Graveyard, process: WorkerProcess) -> None:
    async def is_swept() -> bool:
        return process.pid not in {row["pid"] for row in (await graveyard.workers()).values()}

    await until(is_swept)


async def test_after_a_kill_nothing_is_held_elsewhere_for_the_guard_time(
    holding: Holding, start_neighbour: StartNeighbour, graveyard: Graveyard, connection: Any
) -> None:
    neighbour = await start_neighbour()
    await holding.start({}, **QUICK)  # it holds jobs: the neighbour is alive
    neighbour.process.kill()
    assert neighbour.ended() == 137

    async def has_noticed() -> bool:
        return not await held(holding)

    await until(has_noticed)
    await until_swept(graveyard, neighbour)
    assert await last_death(connection) < SELDOM
    for _ in range(LOADS):
        assert not await held(holding)
    await forget_deaths(connection)
    await holding.warm_up()


async def test_a_pool_that_starts_after_a_kill_holds_nothing_from_its_first_fetch_on(
    holding: Holding, start_neighbour: StartNeighbour, graveyard: Graveyard, connection: Any
) -> None:
    neighbour = await start_neighbour()
    neighbour.process.kill()
    assert neighbour.ended() == 137
    for _ in range(LOADS):
        await holding.add_load(LOAD)
    await holding.start({}, is_warm=False, **QUICK)
    await holding.jobs.until_gone()
    assert holding.held_fetches == []
    await until_swept(graveyard, neighbour)
    assert not await held(holding)
    await forget_deaths(connection)
    await holding.warm_up()


async def test_after_a_goodbye_others_go_on_holding(
    holding: Holding, start_neighbour: StartNeighbour, graveyard: Graveyard, connection: Any
) -> None:
    neighbour = await start_neighbour()
    await holding.start({}, **QUICK)
    neighbour.send(signal.SIGTERM)
    assert neighbour.ended() == 143
    await holding.warm_up()
    assert await last_death(connection) == float("inf")
    assert [row["pid"] for row in (await graveyard.workers()).values()] != [neighbour.pid]


def test_a_predecessor_with_our_own_number_does_not_run_here() -> None:
    """In a container every worker has the same process id."""
    here = socket.gethostname()
    assert _runs_here(here, os.getppid())
    assert not _runs_here(here, os.getpid())
    assert not _runs_here("elsewhere", os.getppid())
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert not _runs_here(here, ended.pid)
