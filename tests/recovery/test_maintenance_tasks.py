"""Maintenance tasks: one pool does what is due, and another one when it is late."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import asyncpg
import pytest

from graphile_worker.recovery.maintenance import LATE, LONGEST_WAIT, MOST_STEPS, OFF_FOR, Maintenance
from graphile_worker.values.clock import SystemClock
from graphile_worker.values.schema_name import SchemaName
from support.working import SCHEMA

T = TypeVar("T")
SCHEMA_NAME = SchemaName()


class Hands(SystemClock):
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.time = 1000.0

    def monotonic(self) -> float:
        return self.time


class Counted:
    """A maintenance task that counts its calls."""

    def __init__(self, name: str = "counted", interval: float = 10.0, *, steps: int = 1) -> None:
        self.name = name
        self.interval = interval
        self.steps = steps
        self.calls = 0
        self.error: Exception | None = None

    async def run(self, connection: Any) -> bool:
        if self.error is not None:
            raise self.error
        self.calls += 1
        return self.calls % self.steps != 0


def maintenance_of(
    connection: Any, *tasks: Counted, pool_id: str = "pool-1", clock: Any = None
) -> Maintenance:
    async def run(work: Callable[[Any], Awaitable[T]]) -> T:
        return await work(connection)

    return Maintenance(tasks, run, SCHEMA_NAME, clock or Hands(), pool_id=pool_id)


async def let_pass(connection: Any, seconds: float) -> None:
    """Make the server believe that everything was done this much earlier."""
    await connection.execute(
        f"update {SCHEMA}._private_py_duties set done_at = done_at - make_interval(secs => $1)", seconds
    )


async def test_a_duty_is_done_at_once_and_then_at_its_interval(connection: Any) -> None:
    task, clock = Counted(), Hands()
    tasks = maintenance_of(connection, task, clock=clock)
    assert await tasks.run_due() == pytest.approx(10)
    await tasks.run_due()
    assert task.calls == 1
    clock.time += 10
    await let_pass(connection, 10)
    await tasks.run_due()
    assert task.calls == 2


async def test_an_interval_that_becomes_shorter_is_noticed(connection: Any) -> None:
    task, clock = Counted(interval=60.0), Hands()
    tasks = maintenance_of(connection, task, clock=clock)
    assert await tasks.run_due() == LONGEST_WAIT
    clock.time += 10
    await let_pass(connection, 10)
    await tasks.run_due()
    assert task.calls == 1
    task.interval = 10.0
    await tasks.run_due()
    assert task.calls == 2


async def test_the_pool_that_did_it_last_goes_on(connection: Any) -> None:
    first, second = Counted(), Counted()
    await maintenance_of(connection, first).run_due()
    await let_pass(connection, 10)
    wait = await maintenance_of(connection, second, pool_id="pool-2").run_due()
    assert second.calls == 0
    assert LATE - 5 < wait <= LATE  # it asks again when the other one would be late
    await maintenance_of(connection, first).run_due()
    assert first.calls == 2


async def test_another_pool_takes_over_when_it_is_late(connection: Any) -> None:
    first, second = Counted(), Counted()
    await maintenance_of(connection, first).run_due()
    await let_pass(connection, 10 + LATE)
    await maintenance_of(connection, second, pool_id="pool-2").run_due()
    assert second.calls == 1
    await let_pass(connection, 10)
    await maintenance_of(connection, first).run_due()
    assert first.calls == 1


async def test_a_clock_that_was_set_back_stops_nothing(connection: Any) -> None:
    task = Counted()
    await maintenance_of(connection, task).run_due()
    await let_pass(connection, -7200)
    await maintenance_of(connection, task, pool_id="pool-2").run_due()
    assert task.calls == 2


async def test_of_many_pools_one_does_it(connection: Any, database_url: str) -> None:
    """Also when all of them ask at the same time."""
    counted = [Counted(str(number)) for number in range(5)]
    connections = [await asyncpg.connect(database_url) for _ in range(8)]
    try:
        for _ in range(5):
            pools = [
                maintenance_of(each, *counted, pool_id=f"pool-{number}")
                for number, each in enumerate(connections)
            ]
            await asyncio.gather(*(tasks.run_due() for tasks in pools))
            await let_pass(connection, 10 + LATE)
    finally:
        for each in connections:
            await each.close(timeout=60)
    assert [task.calls for task in counted] == [5] * 5


async def test_a_duty_goes_on_while_there_is_more_to_do(connection: Any) -> None:
    task, endless = Counted(steps=3), Counted("endless", steps=1_000_000)
    await maintenance_of(connection, task, endless).run_due()
    assert task.calls == 3
    assert endless.calls == MOST_STEPS  # then it is the turn of others


async def test_one_that_fails_is_logged_once_and_does_not_stop_the_others(
    connection: Any, caplog: pytest.LogCaptureFixture
) -> None:
    failing, other = Counted("failing"), Counted("other")
    failing.error = asyncpg.UndefinedColumnError("column x does not exist")
    clock = Hands()
    tasks = maintenance_of(connection, failing, other, clock=clock)
    for _ in range(3):
        await tasks.run_due()
        clock.time += 10
        await let_pass(connection, 10)
    assert other.calls == 3
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == ["the maintenance task 'failing' failed: column x does not exist; retrying"]


async def test_without_the_table_nothing_is_done(connection: Any, caplog: pytest.LogCaptureFixture) -> None:
    await connection.execute(f"drop table {SCHEMA}._private_py_duties")
    task = Counted()
    assert await maintenance_of(connection, task).run_due() == OFF_FOR
    assert task.calls == 0
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
