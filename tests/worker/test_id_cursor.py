"""Held batches of jobs that were added together: fetches by id, and those from the start in between."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from graphile_worker.database.sql import load
from graphile_worker.database.statements.fetch import FROM_START, HIGHEST, LOWEST, ranges, ranges_up_to
from graphile_worker.database.statements.held_batches import ID
from graphile_worker.worker.held import cursor
from graphile_worker.worker.held.cursor import IdCursor
from queries.statements import Statements, statements_on
from support.working import SCHEMA

COUNT = 4000
BATCH = 400


@pytest.fixture(autouse=True)
def seldom_from_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursor, "FROM_START_AFTER", 3600.0)


@pytest.fixture
async def statements(connection: Any) -> Statements:
    statements = await statements_on(connection)
    await statements.add_together(COUNT)
    return statements


class Sending:
    """The part of a connection that a fetch needs."""

    def __init__(self, fetch: Any) -> None:
        self.fetch = fetch


class Batches:
    """The fetches of one pool; each batch ends at once, and its jobs are deleted."""

    def __init__(self, connection: Any, statements: Statements) -> None:
        self._connection = connection
        self._statements = statements
        self.tied = IdCursor(statements.schema)
        self.sent: list[str] = []
        names = (
            "get_tied_jobs",
            "get_tied_jobs_among_others",
            "get_held_jobs",
            "get_held_jobs_above_watermarks",
        )
        self._names = {load(f"held/{name}", statements.schema): name for name in names}
        connection.add_query_logger(self._log)
        self.meanwhile: Callable[[], Awaitable[None]] | None = None
        """Happens once, while a fetch is in flight."""

    def _log(self, query: Any) -> None:
        if name := self._names.get(query.query):
            self.sent.append(name)

    async def fetch(self, limit: int = BATCH, **terms: Any) -> list[int]:
        self.sent.clear()
        terms = {"ranges": None, "tasks": self._statements.tasks} | terms
        async with self._connection.transaction():
            rows, _ = await self.tied.fetch(Sending(self.send), limit=limit, **terms)  # type: ignore[arg-type]
            ids = [row[ID] for row in rows]
            await self._connection.execute(f"delete from {SCHEMA}._private_jobs where id = any ($1)", ids)
        return ids

    async def send(self, query: str, *arguments: Any) -> Any:
        rows = await self._connection.fetch(query, *arguments)
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        return rows


@pytest.fixture
def batches(statements: Statements) -> Batches:
    return Batches(statements.connection, statements)


async def test_each_batch_goes_on_after_the_one_before(batches: Batches) -> None:
    last = (await batches.fetch())[-1]
    assert batches.sent == ["get_held_jobs"]
    for _ in range(3):
        found = await batches.fetch()
        assert batches.sent == ["get_tied_jobs"]
        assert found == list(range(last + 1, last + 1 + BATCH))
        last = found[-1]


async def test_beside_other_kinds_of_jobs_it_goes_on_after_looking_at_them(
    batches: Batches, statements: Statements
) -> None:
    """As long as no fetch reads from the start: by then they may be gone."""
    await statements.connection.execute(
        f"select {SCHEMA}.add_job('hello', queue_name => 'named', run_at => now() + interval '1 hour')"
    )
    seen = []
    for _ in range(4):
        await batches.fetch()
        seen.append(batches.sent.copy())
    assert seen == [
        ["get_held_jobs"],
        ["get_tied_jobs", "get_held_jobs"],
        ["get_tied_jobs_among_others"],
        ["get_tied_jobs_among_others"],
    ]
    await statements.connection.execute(f"delete from {SCHEMA}._private_jobs where job_queue_id is not null")
    batches.tied.forget()
    await batches.fetch()
    await batches.fetch()
    assert batches.sent == ["get_tied_jobs"]


async def test_above_watermarks_too(batches: Batches) -> None:
    within = ranges({0: FROM_START})
    last = (await batches.fetch(ranges=within))[-1]
    assert batches.sent == ["get_held_jobs_above_watermarks"]
    assert (await batches.fetch(ranges=within))[0] == last + 1
    assert batches.sent == ["get_tied_jobs"]


async def test_other_tasks_begin_from_the_start(batches: Batches, statements: Statements) -> None:
    await batches.fetch()
    await batches.fetch(tasks=dict(statements.tasks))
    assert batches.sent == ["get_held_jobs"]


@pytest.mark.parametrize("is_forgotten", [False, True])
async def test_a_job_that_was_left_behind_is_found_from_the_start(
    batches: Batches,
    connection: Any,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
    is_forgotten: bool,
) -> None:
    other = await asyncpg.connect(database_url)
    try:
        async with other.transaction():
            left = await other.fetchval(f"select min(id) from {SCHEMA}._private_jobs")
            await other.execute(f"select from {SCHEMA}._private_jobs where id = $1 for update", left)
            if not is_forgotten:
                monkeypatch.setattr(cursor, "FROM_START_AFTER", 0.0)
                monkeypatch.setattr(cursor, "FROM_START_COSTS", 0.0)
            assert left not in await batches.fetch()
    finally:
        await other.close()
    if is_forgotten:
        assert left not in await batches.fetch()
        batches.tied.forget()
    assert (await batches.fetch())[0] == left


async def test_what_the_pool_has_released_is_next(batches: Batches, statements: Statements) -> None:
    """Also if that was while a fetch was in flight."""
    first = await batches.fetch()
    released = first[:10]

    async def release() -> None:
        await statements.connection.execute(
            f"insert into {SCHEMA}._private_jobs (id, task_id, run_at) overriding system value "
            f"select unnest($1::bigint[]), task_id, run_at "
            f"from (select * from {SCHEMA}._private_jobs limit 1) one",
            released,
        )
        batches.tied.released(released)

    batches.meanwhile = release
    last = (await batches.fetch())[-1]
    found = await batches.fetch()
    assert batches.sent == ["get_tied_jobs"]
    assert found[:10] == released
    assert found[10:] == list(range(last + 1, last + 1 + BATCH - 10))


async def test_a_fetch_from_the_start_in_between_does_not_lose_the_place(
    batches: Batches, database_url: str
) -> None:
    """Other workers may have what comes after the jobs that it finds."""
    left = await batches.fetch()
    other = await asyncpg.connect(database_url)
    try:
        async with other.transaction():
            await other.execute(
                f"select from {SCHEMA}._private_jobs where id <= $1 for update", left[-1] + BATCH
            )
            place = (await batches.fetch())[-1]
            assert place > left[-1] + BATCH
    finally:
        await other.close()
    batches.tied.forget()
    passed = await batches.fetch()
    assert batches.sent == ["get_held_jobs"]
    assert passed == list(range(left[-1] + 1, left[-1] + BATCH + 1))
    assert (await batches.fetch())[0] == place + 1
    assert batches.sent == ["get_tied_jobs"]


async def test_lanes_do_not_go_on_after_each_other(
    batches: Batches, statements: Statements, database_url: str
) -> None:
    await batches.fetch()
    connection = await asyncpg.connect(database_url)
    other_lane = dict(statements.tasks)

    async def fetch_for_the_other_lane() -> None:
        await batches.tied.fetch(connection, None, tasks=other_lane, limit=BATCH)

    try:
        batches.meanwhile = fetch_for_the_other_lane
        await batches.fetch()
        await batches.fetch(tasks=other_lane)
        assert batches.sent == ["get_held_jobs"]
    finally:
        await connection.close()


async def test_a_batch_that_finds_few_is_the_last_by_id(batches: Batches, connection: Any) -> None:
    last = (await batches.fetch())[-1]
    await connection.execute(
        f"delete from {SCHEMA}._private_jobs where id > $1 and id % 10 <> 0 and id < $1 + 5 * $2::integer",
        last,
        BATCH,
    )
    few = await batches.fetch()
    assert batches.sent == ["get_tied_jobs"]
    assert 0 < len(few) <= BATCH // 2
    await batches.fetch()
    assert batches.sent == ["get_held_jobs"]


async def test_two_pools_take_turns_and_leave_nothing(
    batches: Batches, statements: Statements, database_url: str
) -> None:
    connection = await asyncpg.connect(database_url)
    try:
        others = Batches(connection, statements)
        found: list[int] = []
        for _ in range(COUNT):
            taken = [*await batches.fetch(), *await others.fetch(BATCH // 2)]
            found += taken
            if not taken:
                break
    finally:
        await connection.close()
    assert len(set(found)) == len(found) == COUNT


async def test_going_on_by_id_pauses_where_it_finds_nothing(batches: Batches, connection: Any) -> None:
    """A job of another worker comes first, so the shorter statement never knows what is next."""
    await connection.execute(f"select {SCHEMA}.add_job('of another worker', priority => -1)")
    size = 50
    sent = []
    while len(await batches.fetch(size)) == size:
        sent.append(list(batches.sent))
    from_start, in_vain = ["get_held_jobs"], ["get_tied_jobs", "get_held_jobs"]
    looked = ["get_tied_jobs_among_others", "get_held_jobs"]
    pause = [from_start] * (cursor.UNTIED - 1)
    expected = [
        from_start,
        in_vain,
        *[looked] * (cursor.MOST_IN_VAIN - 1),
        *pause,
        in_vain,
        *pause,
        in_vain,
    ]
    assert sent[: len(expected)] == expected


def test_ranges_up_to_a_priority() -> None:
    assert ranges_up_to(0, None) == ([LOWEST, 0], [-1, 0], [FROM_START, FROM_START])
    assert ranges_up_to(LOWEST, None) == ([LOWEST], [LOWEST], [FROM_START])
    known = ranges({-5: 3.0, 0: 7.0, 4: 9.0})
    assert ranges_up_to(0, known) == (
        [LOWEST, -5, -4, 0],
        [-6, -5, -1, 0],
        [FROM_START, 3.0, FROM_START, 7.0],
    )
    assert ranges_up_to(2, known)[0] == [LOWEST, -5, -4, 0, 1, 2]
    assert known[1][-1] == HIGHEST
