"""Many limits in one worker: what they cost, and that each of them is kept and found."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from graphile_worker import Limit, Task, task
from graphile_worker.database.statements.fetch import FROM_START, Ranges, ranges, register_tasks
from graphile_worker.database.statements.limits import ready_tasks
from graphile_worker.values.schema_name import SchemaName
from support.working import PATIENCE, SCHEMA, SELDOM, Gate, Jobs, Workers, until

FEW, MANY = 5, 60


def tasks_with_limits(count: int, function: Any, **bounds: Any) -> list[Task[Any, Any]]:
    """As many tasks, each with a limit of its own: `limited 0`, `limited 1`, ..."""

    def make(number: int) -> Task[Any, Any]:
        async def call(payload: Any) -> None:
            await function(payload)

        limit = Limit(f"limit {number}", **(bounds or {"concurrency": 1}))
        return task(f"limited {number}", limit=limit)(call)

    return [make(number) for number in range(count)]


class Statements:
    """Counts what workers send, by what it is."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    @asynccontextmanager
    async def pool(self, database_url: str) -> AsyncIterator[Any]:
        async def watch(connection: Any) -> None:
            connection.add_query_logger(self._record)

        pool = await asyncpg.create_pool(database_url, min_size=0, max_size=5, setup=watch, reset=_no_reset)
        try:
            yield pool
        finally:
            await pool.close()

    def _record(self, record: Any) -> None:
        self.counts["all"] += 1
        if "get_limited_jobs" in record.query:
            self.counts["limited fetches"] += 1
        elif "is_queued" in record.query:
            self.counts["questions"] += 1
        elif "locked_by = $1" in record.query:
            self.counts["main fetches"] += 1


async def _no_reset(connection: Any) -> None:
    return None


@pytest.mark.parametrize("count", [FEW, MANY])
async def test_an_idle_worker_asks_once_per_poll_for_all_limits(
    database_url: str, workers: Workers, count: int
) -> None:
    @task("plain")
    async def plain(payload: Any) -> None: ...

    statements = Statements()
    async with statements.pool(database_url) as pool:
        runner = await workers.start(
            [plain, *tasks_with_limits(count, Gate())], pg_pool=pool, poll_interval=0.1, concurrency=2
        )
        await until(lambda: statements.counts["main fetches"] > 0)
        statements.counts.clear()
        await until(lambda: statements.counts["main fetches"] >= 10)
        counts = Counter(statements.counts)
        await workers.stop(runner)
    assert counts["limited fetches"] == 0
    # A lane that has just got an answer may ask once more by itself, if the loop was busy.
    assert 1 <= counts["questions"] <= 2 * counts["main fetches"] + 2


async def test_a_start_takes_as_many_statements_for_many_limits_as_for_few(
    database_url: str, jobs: Jobs, workers: Workers
) -> None:
    needed = []
    for count in (FEW, MANY):
        gate, statements = Gate(), Statements()
        await jobs.add(f"limited {count - 1}")
        async with statements.pool(database_url) as pool:
            runner = await workers.start(
                tasks_with_limits(count, gate), pg_pool=pool, poll_interval=SELDOM, concurrency=2
            )
            await gate.until_inside(1)
            needed.append(statements.counts["all"])
            gate.open_all()
            await jobs.until_gone()
            await workers.stop(runner)
    few, many = needed
    assert many < few + 15, needed


async def test_a_question_that_other_code_cancels_is_asked_again(jobs: Jobs, workers: Workers) -> None:
    def questions() -> list[asyncio.Task[Any]]:
        tasks = asyncio.all_tasks()
        return [task for task in tasks if getattr(task.get_coro(), "__name__", "") == "_ask_after"]

    gate = Gate()
    await workers.start(tasks_with_limits(FEW, gate), poll_interval=0.1, concurrency=2)
    async with asyncio.timeout(PATIENCE):
        while not (asked := questions()):  # noqa: ASYNC110 - look at each step of the event loop
            await asyncio.sleep(0)
    for question in asked:  # before its first step
        question.cancel()
    await jobs.add("limited 0")
    await gate.until_inside(1)
    gate.open_all()
    await jobs.until_gone()


async def test_every_limit_is_kept_and_its_room_is_used_at_once(jobs: Jobs, workers: Workers) -> None:
    """Two workers; no poll. Each job that ends makes room for the next one of its limit."""
    gates = [Gate() for _ in range(FEW)]

    async def enter(payload: Any) -> None:
        await gates[payload["gate"]](payload)

    for _ in range(2):
        await workers.start(tasks_with_limits(FEW, enter, concurrency=2), poll_interval=SELDOM, concurrency=4)
    for number in range(FEW):
        for _ in range(5):
            await jobs.add(f"limited {number}", {"gate": number})
    for done in range(5):
        for gate in gates:
            await gate.until_inside(min(2, 5 - done))
            assert gate.inside <= 2
            gate.open()
    await jobs.until_gone()
    assert [gate.most_at_once for gate in gates] == [2] * FEW


async def test_jobs_beyond_what_one_question_reads_are_found(
    jobs: Jobs, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first task has more ready jobs than are read at once; it must not hide the others."""
    monkeypatch.setattr("graphile_worker.worker.fetch.limited.MANY", 3)
    gate = Gate()
    await jobs.add_many("limited 0", 10)
    for number in (1, 2, 3):
        await jobs.add(f"limited {number}", queue="a queue" if number == 2 else None)
    await workers.start(tasks_with_limits(FEW, gate), poll_interval=SELDOM, concurrency=4)
    await gate.until_inside(4)
    while await jobs.count():
        gate.open_all()
        await until(lambda: gate.inside > 0 or len(gate.ended) == 13)
        if len(gate.ended) == 13:
            await jobs.until_gone()


async def test_a_job_whose_queue_was_busy_is_found_by_the_next_poll(
    database_url: str, jobs: Jobs, workers: Workers
) -> None:
    """Another worker holds the queue and frees it without a word."""
    gate = Gate()
    await jobs.add("limited 1", queue="busy")
    await jobs.connection.execute(
        f"update {SCHEMA}._private_job_queues set locked_at = now(), locked_by = 'somebody'"
    )
    statements = Statements()
    async with statements.pool(database_url) as pool:
        await workers.start(tasks_with_limits(FEW, gate), pg_pool=pool, poll_interval=0.1)
        await until(lambda: statements.counts["limited fetches"] >= 2)
        assert not gate.started
        await jobs.connection.execute(
            f"update {SCHEMA}._private_job_queues set locked_at = null, locked_by = null"
        )
        await gate.until_inside(1)
        gate.open()
        await jobs.until_gone()
        await workers.close()


async def test_the_question_counts_ready_jobs_and_begins_at_watermarks(jobs: Jobs) -> None:
    schema = SchemaName(SCHEMA)
    now = await jobs.connection.fetchval("select date_trunc('second', now())")
    for task_name, seconds, priority, queue in (
        ("a", 60, 0, None),
        ("a", 30, 0, None),
        ("b", 60, 5, None),
        ("b", 60, 0, "busy"),
        ("c", -60, 0, None),
        ("other", 60, 0, None),
    ):
        run_at = now - timedelta(seconds=seconds)
        await jobs.add(task_name, priority=priority, queue=queue, run_at=run_at)
    tasks = await register_tasks(jobs.connection, schema, ["a", "b", "c"])

    async def counts(
        limit: int = 100, within: Ranges | None = None
    ) -> set[tuple[str, int, float, bool, int]]:
        return {
            (tasks[ready.task_id], ready.priority, now.timestamp() - ready.raw_run_at, in_queue, ready.jobs)
            for ready in await ready_tasks(jobs.connection, schema, tasks=tasks, limit=limit, ranges=within)
            for in_queue in [ready.job_queue_id is not None]
        }

    everything = {("a", 0, 30.0, False, 2), ("b", 5, 60.0, False, 1), ("b", 0, 60.0, True, 1)}
    assert await counts() == everything
    assert await counts(1) == {("a", 0, 60.0, False, 1), ("b", 0, 60.0, True, 1)}
    assert await counts(within=ranges({0: FROM_START})) == everything
    later = {("a", 0, 30.0, False, 1), ("b", 5, 60.0, False, 1), ("b", 0, 60.0, True, 1)}
    assert await counts(within=ranges({0: now.timestamp() - 40})) == later


async def test_jobs_are_found_while_questions_begin_at_watermarks(
    jobs: Jobs, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every fetch and every question counts as slow; one limit is full, and another job of it is waiting."""
    monkeypatch.setattr("graphile_worker.worker.fetch.plan.SLOW", -1.0)
    monkeypatch.setattr("graphile_worker.worker.fetch.plan.SLOW_PER_JOB", 0.0)
    gate = Gate()
    await jobs.add("of others")
    await workers.start(tasks_with_limits(FEW, gate), poll_interval=0.1, concurrency=4)
    for number in (0, 0, 1, 2, 2):
        await jobs.add(f"limited {number}")
    await gate.until_inside(3)
    for _ in range(5):
        await gate.until_inside(1)
        gate.open()

    async def is_alone() -> bool:
        return await jobs.count() == 1

    await until(is_alone)
