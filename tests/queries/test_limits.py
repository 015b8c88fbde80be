"""The fetch through limits: exact room, exact tokens, and what it reads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from graphile_worker.database.connections.encoding import teach_arrays
from graphile_worker.database.sql import load
from graphile_worker.database.statements.fetch import register_tasks
from graphile_worker.database.statements.held_batches import (
    begin_batch,
    commit_batch,
    end_batch,
    get_held_jobs,
    roll_back_batch,
    transaction_number,
)
from graphile_worker.database.statements.limits import (
    LimitState,
    admit_held_jobs,
    count_again,
    count_no_more,
    get_limited_jobs,
    register_limits,
    set_tracks,
)
from graphile_worker.values.concurrency import Limit
from graphile_worker.values.job import Job
from graphile_worker.values.schema_name import SchemaName

SCHEMA = SchemaName()
LIMITS = "graphile_worker._private_py_limits"
HOLDS = "graphile_worker._private_py_limit_holds"
JOBS = "graphile_worker._private_jobs"


class Fetches:
    """Fetches of one pool on the test's own connection."""

    def __init__(self, connection: Any, tasks: dict[int, str], pool_id: str = "pool-a") -> None:
        self.connection, self.tasks, self.pool_id = connection, tasks, pool_id

    async def fetch(self, wanted: int, *names: str, **values: Any) -> tuple[list[Job], LimitState]:
        jobs, state = await get_limited_jobs(
            self.connection,
            SCHEMA,
            pool_id=self.pool_id,
            tasks=self.tasks,
            limit=wanted,
            limits=names,
            **values,
        )
        return list(jobs), state


@pytest.fixture
async def fetches(connection: Any) -> Fetches:
    teach_arrays(connection)
    await connection.fetch(load("session/tune_session", SCHEMA))
    return Fetches(connection, await register_tasks(connection, SCHEMA, ["limited"]))


@pytest.fixture
async def second_connection(database_url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


async def fill(connection: Any, count: int, task: str = "limited") -> None:
    await connection.execute(
        f"insert into {JOBS} (task_id, run_at) "
        "select (select id from graphile_worker._private_tasks where identifier = $2), "
        "now() - interval '1 day' + n * interval '1 millisecond' from generate_series(1, $1::integer) n",
        count,
        task,
    )


async def widen(connection: Any, name: str, concurrency: int) -> None:
    """Move all jobs to a queue of this concurrency."""
    queue_id = await connection.fetchval(
        "insert into graphile_worker._private_job_queues (queue_name) values ($1) returning id", name
    )
    await set_tracks(connection, SCHEMA, {queue_id: concurrency})
    await connection.execute(f"update {JOBS} set job_queue_id = $1", queue_id)


async def register(connection: Any, *limits: Limit) -> None:
    await register_limits(connection, SCHEMA, {limit: ["limited"] for limit in limits})


async def forward(connection: Any, seconds: float) -> None:
    """Let the rates believe that this much time has passed, and none since the last call."""
    await connection.execute(
        f"update {LIMITS} set refilled_at = clock_timestamp() - $1 * interval '1 second'", seconds
    )


async def test_room_is_what_others_have_not_locked(fetches: Fetches) -> None:
    connection = fetches.connection
    await fill(connection, 20)
    await register(connection, Limit("x", concurrency=5))
    first, state = await fetches.fetch(3, "x")
    assert (len(first), state.room, state.is_full) == (3, 3, False)
    other = Fetches(connection, fetches.tasks, "pool-b")
    second, state = await other.fetch(10, "x")
    assert (len(second), state.room, state.is_full) == (2, 2, True)
    assert (await fetches.fetch(10, "x"))[0] == []
    # A hold counts while its pool has the job: not when the job is gone, free, or locked by another pool.
    await connection.execute(f"delete from {JOBS} where id = $1", first[0].id)
    assert len((await fetches.fetch(10, "x"))[0]) == 1
    await connection.execute(
        f"update {JOBS} set locked_by = null, locked_at = null, run_at = now() + interval '1 day' "
        "where id = $1",
        first[1].id,
    )
    assert len((await fetches.fetch(10, "x"))[0]) == 1
    await connection.execute(f"update {JOBS} set locked_by = 'node' where id = $1", second[0].id)
    assert len((await other.fetch(10, "x"))[0]) == 1
    assert await in_rows(connection) == [1] * 5


async def test_a_row_that_came_with_a_dump_does_not_hide_what_a_fetch_takes(fetches: Fetches) -> None:
    """The transactions of another server may have had the same numbers."""
    connection = fetches.connection
    await fill(connection, 20)
    await register(connection, Limit("x", concurrency=5))
    async with connection.transaction():
        await connection.execute(
            f"insert into {HOLDS} (limit_name, job_id, pool_id, job_ids) "
            "values ('x', - txid_current(), 'pool of another server', '{1}')"
        )
        assert len((await fetches.fetch(3, "x"))[0]) == 3
    assert await in_rows(connection) == [3]
    assert len((await fetches.fetch(10, "x"))[0]) == 2


async def in_rows(connection: Any) -> list[int]:
    """How many jobs each row has: those of one fetch, or fewer."""
    rows = await connection.fetch(f"select coalesce(cardinality(job_ids), 1) from {HOLDS}")
    return [row[0] for row in rows]


async def locks_read(fetches: Fetches, wanted: int) -> tuple[int, int]:
    """How many jobs a fetch finds, and how many rows it reads beside them."""
    connection = fetches.connection
    async with connection.transaction():
        before = await rows_read(connection)
        jobs, _ = await fetches.fetch(wanted, "x")
        return len(jobs), await rows_read(connection) - before


async def test_a_limit_that_does_not_bind_costs_a_row_per_fetch_and_looks_at_no_lock(
    fetches: Fetches,
) -> None:
    connection = fetches.connection
    await fill(connection, 1_000)
    await connection.execute(f"analyze {JOBS}")
    await register(connection, Limit("x", concurrency=400))
    await fetches.fetch(300, "x")
    found, read = await locks_read(fetches, 10)
    assert found == 10
    assert read < 60
    await fetches.fetch(50, "x")
    assert sorted(await in_rows(connection)) == [10, 50, 300]
    found, read = await locks_read(fetches, 100)  # there may be no room for all
    assert found == 40
    assert read > 300


async def test_rows_become_shorter_as_their_jobs_end(fetches: Fetches) -> None:
    connection = fetches.connection
    await fill(connection, 100)
    await register(connection, Limit("x", concurrency=20))
    first, _ = await fetches.fetch(12, "x")
    second, _ = await fetches.fetch(8, "x")
    ended = [job.id for job in [*first[:7], *second]]
    await connection.execute(f"delete from {JOBS} where id = any ($1::bigint[])", ended)
    jobs, state = await fetches.fetch(1, "x")
    assert (len(jobs), state.room) == (1, 1)
    assert sorted(await in_rows(connection)) == [1, 5]
    jobs, state = await fetches.fetch(50, "x")
    assert (len(jobs), state.room, state.is_full) == (14, 14, True)


async def test_a_job_that_its_pool_has_locked_again_counts_once(fetches: Fetches) -> None:
    connection = fetches.connection
    await fill(connection, 3)
    await register(connection, Limit("x", concurrency=4))
    await fetches.fetch(3, "x")
    await connection.execute(
        f"update {JOBS} set locked_by = null, locked_at = null "
        f"where id = (select min(id) from {JOBS} where locked_at is not null)"
    )
    assert len((await fetches.fetch(1, "x"))[0]) == 1
    await fill(connection, 10)
    jobs, state = await fetches.fetch(10, "x")
    assert (len(jobs), state.room) == (1, 1)
    limits = await connection.fetch(load("limits/list_limits", SCHEMA))
    assert [row["running"] for row in limits] == [4]


async def test_jobs_in_rows_of_earlier_versions_count(fetches: Fetches) -> None:
    connection = fetches.connection
    await fill(connection, 10)
    await register(connection, Limit("x", concurrency=4))
    await fetches.fetch(3, "x")
    await connection.execute(
        f"with old as (delete from {HOLDS} returning *) insert into {HOLDS} (limit_name, job_id, pool_id) "
        "select limit_name, unnest(job_ids), pool_id from old"
    )
    assert [row["running"] for row in await connection.fetch(load("limits/list_limits", SCHEMA))] == [3]
    jobs, state = await fetches.fetch(10, "x")
    assert (len(jobs), state.room) == (1, 1)
    await connection.execute(f"delete from {JOBS} where locked_at is not null")
    jobs, state = await fetches.fetch(10, "x")
    assert (len(jobs), state.room) == (4, 4)
    assert await in_rows(connection) == [4]


async def test_two_fetches_in_one_transaction_count_both(fetches: Fetches) -> None:
    connection = fetches.connection
    await fill(connection, 10)
    await register(connection, Limit("x", concurrency=5))
    async with connection.transaction():
        assert len((await fetches.fetch(2, "x"))[0]) == 2
        assert len((await fetches.fetch(1, "x"))[0]) == 1
    assert await in_rows(connection) == [3]
    assert len((await fetches.fetch(10, "x"))[0]) == 2


async def test_tokens_come_at_the_rate_up_to_the_burst(fetches: Fetches) -> None:
    connection = fetches.connection
    await fill(connection, 100)
    await register(connection, Limit("x", rate=(60, 60), burst=4))  # one per second
    jobs, state = await fetches.fetch(50, "x")
    assert (len(jobs), state.is_counted, state.may_prefetch) == (4, False, False)
    assert state.wait == pytest.approx(1.0)
    await forward(connection, 2.5)
    jobs, state = await fetches.fetch(50, "x")
    assert len(jobs) == 2
    assert 0 < (state.wait or 0) <= 0.5
    await forward(connection, 1000)
    assert len((await fetches.fetch(50, "x"))[0]) == 4
    await forward(connection, 0)
    jobs, state = await fetches.fetch(50, "x")
    assert (jobs, state.room) == ([], 0)


async def test_a_clock_that_goes_back_takes_no_tokens(fetches: Fetches) -> None:
    connection = fetches.connection
    await fill(connection, 10)
    await register(connection, Limit("x", rate=(1, 1), burst=3))
    assert len((await fetches.fetch(1, "x"))[0]) == 1
    await forward(connection, -1000)
    assert len((await fetches.fetch(10, "x"))[0]) == 2


async def test_a_clock_that_was_set_back_does_not_stop_a_rate(fetches: Fetches) -> None:
    await register(fetches.connection, Limit("clock", rate=(1, 1.0), burst=1))
    await fill(fetches.connection, 2)
    await fetches.connection.execute(
        f"update {LIMITS} set tokens = 0, refilled_at = clock_timestamp() + interval '1 hour'"
    )
    assert (await fetches.fetch(1, "clock"))[0] == []
    is_refilling = f"select refilled_at <= clock_timestamp() from {LIMITS}"
    assert await fetches.connection.fetchval(is_refilling)


async def test_a_fast_rate_may_be_prefetched_with_a_smaller_burst(fetches: Fetches) -> None:
    """What is prefetched starts later, when a fifth of a second of further tokens may have come."""
    connection = fetches.connection
    await fill(connection, 2000)
    await register(connection, Limit("x", rate=(1000, 1), burst=1000))
    jobs, state = await fetches.fetch(2000, "x")
    assert (len(jobs), state.may_prefetch) == (800, True)


async def test_the_narrowest_limit_decides(fetches: Fetches) -> None:
    connection = fetches.connection
    await fill(connection, 100)
    await register(
        connection, Limit("a", concurrency=7), Limit("b", rate=(1, 3600), burst=5), Limit("c", concurrency=9)
    )
    jobs, state = await fetches.fetch(50, "a", "b", "c")
    assert (len(jobs), state.room, state.is_full) == (5, 5, False)
    await connection.execute(f"update {LIMITS} set tokens = 'infinity' where name = 'b'")
    jobs, state = await fetches.fetch(50, "a", "b", "c")
    assert (len(jobs), state.is_full) == (2, True)


async def test_a_limit_in_use_by_another_fetch_is_left_alone(
    fetches: Fetches, second_connection: Any
) -> None:
    connection = fetches.connection
    await fill(connection, 10)
    await register(connection, Limit("x", concurrency=5))
    async with second_connection.transaction():
        await second_connection.execute(f"select from {LIMITS} for update")
        jobs, state = await fetches.fetch(5, "x")
        assert (jobs, state.is_busy) == ([], True)
    jobs, state = await fetches.fetch(5, "x", "no such limit")
    assert (jobs, state.is_missing) == ([], True)


# -- held batches --------------------------------------------------------------------------------------------


class Batch:
    """A held batch on a connection of its own: its transaction has locked rows, and wrote nothing."""

    def __init__(self, connection: Any, fetches: Fetches) -> None:
        self.connection, self._fetches = connection, fetches
        self.ids: list[int] = []

    async def begin(self, count: int) -> None:
        await begin_batch(self.connection, SCHEMA)
        rows = await get_held_jobs(self.connection, SCHEMA, tasks=self._fetches.tasks, limit=count)
        self.ids = [row[0] for row in rows]
        assert len(self.ids) == count

    async def admit(self, *limits: str) -> LimitState:
        number = await transaction_number(self.connection, SCHEMA)
        return await admit_held_jobs(
            self._fetches.connection, SCHEMA,
            pool_id=self._fetches.pool_id, number=number, job_ids=self.ids, limits=limits,
        )  # fmt: skip


@pytest.fixture
async def batch(fetches: Fetches, second_connection: Any) -> Batch:
    teach_arrays(second_connection)
    await second_connection.fetch(load("session/tune_session", SCHEMA))
    return Batch(second_connection, fetches)


async def room(fetches: Fetches) -> int:
    """For how many jobs another pool finds room; it fetches none."""
    _, state = await Fetches(fetches.connection, {}, "pool-b").fetch(1_000, "x")
    return state.room


async def test_held_jobs_count_while_their_transaction_is_open(fetches: Fetches, batch: Batch) -> None:
    connection = fetches.connection
    await fill(connection, 20)
    await register(connection, Limit("x", concurrency=10))
    await batch.begin(4)
    assert await room(fetches) == 10
    state = await batch.admit("x")
    assert (state.room, state.bound, state.is_counted, state.is_full) == (4, 10, True, False)
    assert await room(fetches) == 6
    assert [row["running"] for row in await connection.fetch(load("limits/list_limits", SCHEMA))] == [4]
    await roll_back_batch(batch.connection)
    assert await room(fetches) == 10
    assert await in_rows(connection) == []


async def test_what_outlasts_a_batch_counts_on(fetches: Fetches, batch: Batch) -> None:
    await fill(fetches.connection, 20)
    await register(fetches.connection, Limit("x", concurrency=10))
    await batch.begin(4)
    await batch.admit("x")
    first, *others = batch.ids
    await end_batch(batch.connection, SCHEMA, fetches.pool_id, completed=others, outlasting=[first])
    await commit_batch(batch.connection)
    assert await room(fetches) == 9
    await fetches.connection.execute(f"delete from {JOBS} where id = $1", first)
    assert await room(fetches) == 10


async def test_a_batch_that_nothing_outlasts_leaves_no_row(fetches: Fetches, batch: Batch) -> None:
    await fill(fetches.connection, 20)
    await register(fetches.connection, Limit("x", concurrency=10), Limit("y", concurrency=10))
    await batch.begin(4)
    await batch.admit("x", "y")
    assert await in_rows(fetches.connection) == [4, 4]
    await end_batch(batch.connection, SCHEMA, fetches.pool_id, completed=batch.ids, outlasting=[])
    await count_no_more(batch.connection, SCHEMA, ["x", "y"])
    await commit_batch(batch.connection)
    assert await in_rows(fetches.connection) == []


async def test_a_batch_is_admitted_as_a_whole_or_not_at_all(fetches: Fetches, batch: Batch) -> None:
    connection = fetches.connection
    await fill(connection, 20)
    await register(connection, Limit("x", concurrency=10), Limit("y", rate=(1, 3600), burst=3))
    await connection.execute(f"update {LIMITS} set tokens = 3")
    await batch.begin(4)
    state = await batch.admit("x", "y")
    assert (state.room, state.bound) == (3, 3)
    assert await in_rows(connection) == []
    assert round(await connection.fetchval(f"select tokens from {LIMITS} where name = 'y'")) == 3
    await roll_back_batch(batch.connection)
    await batch.begin(2)
    assert (await batch.admit("x", "y")).room == 2
    assert round(await connection.fetchval(f"select tokens from {LIMITS} where name = 'y'")) == 1
    assert await in_rows(connection) == [2]


async def test_a_batch_does_not_wait_for_another_fetch(
    fetches: Fetches, batch: Batch, database_url: str
) -> None:
    await fill(fetches.connection, 20)
    await register(fetches.connection, Limit("x", concurrency=10))
    await batch.begin(4)
    other = await asyncpg.connect(database_url)
    async with other.transaction():
        await other.execute(f"select from {LIMITS} for update")
        assert (await batch.admit("x")).is_busy
    await other.close()
    assert (await batch.admit("x")).room == 4


async def test_a_batch_that_ends_while_it_is_counted_is_seen_before_or_after_its_end(
    fetches: Fetches, batch: Batch
) -> None:
    """By one snapshot it is open and nothing is locked, by the next it has ended and a job is locked."""
    connection, list_limits = fetches.connection, load("limits/list_limits", SCHEMA)
    await fill(connection, 20)
    await register(connection, Limit("x", concurrency=10))
    await batch.begin(4)
    await batch.admit("x")
    async with connection.transaction(isolation="repeatable_read"):
        assert [row["running"] for row in await connection.fetch(list_limits)] == [4]
        first, *others = batch.ids
        await end_batch(batch.connection, SCHEMA, fetches.pool_id, completed=others, outlasting=[first])
        await commit_batch(batch.connection)
        assert [row["running"] for row in await connection.fetch(list_limits)] == [4]
    assert [row["running"] for row in await connection.fetch(list_limits)] == [1]


async def test_a_batch_of_another_server_does_not_count(fetches: Fetches) -> None:
    """A dump may have numbers of transactions that this server has not reached."""
    connection = fetches.connection
    await fill(connection, 20)
    await register(connection, Limit("x", concurrency=10))
    await connection.execute(
        f"insert into {HOLDS} (limit_name, job_id, pool_id, job_ids) "
        f"select 'x', - txid_current() - 1000000000, 'gone', array(select id from {JOBS} limit 5)"
    )
    assert await room(fetches) == 10


async def test_jobs_of_a_lost_batch_are_counted_again_once_they_are_locked(
    fetches: Fetches, batch: Batch
) -> None:
    connection = fetches.connection
    await fill(connection, 20)
    await register(connection, Limit("x", concurrency=10))
    await batch.begin(4)
    await batch.admit("x")
    await roll_back_batch(batch.connection)
    assert await room(fetches) == 10  # which removes the row
    await count_again(connection, SCHEMA, pool_id=fetches.pool_id, job_ids=batch.ids, limits=["x"])
    assert await in_rows(connection) == [4]
    await connection.execute(
        f"update {JOBS} set locked_by = $1, locked_at = now() where id = any ($2::bigint[])",
        fetches.pool_id, batch.ids[:3],
    )  # fmt: skip
    assert await room(fetches) == 7


# -- what it reads -------------------------------------------------------------------------------------------


async def rows_read(connection: Any) -> int:
    """Jobs that this session has read, in this transaction or in earlier ones that were not reported yet."""
    return await connection.fetchval(
        "select coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) from pg_stat_xact_user_tables "
        "where relname = '_private_jobs'"
    )


async def fetched_and_read(fetches: Fetches, **options: Any) -> tuple[int, int]:
    """How many jobs a fetch of 50 of the limit x finds, and how many it reads for that."""
    connection = fetches.connection
    async with connection.transaction():  # so that nothing is reported in between
        before = await rows_read(connection)
        jobs, _ = await fetches.fetch(50, "x", **options)
        return len(jobs), await rows_read(connection) - before


async def test_it_reads_few_rows_whatever_waits(fetches: Fetches) -> None:
    """A hundred thousand waiting jobs of the limited task: with room for ten, about ten are read."""
    connection = fetches.connection
    await fill(connection, 100_000)
    await connection.execute(f"analyze {JOBS}")
    await register(connection, Limit("x", concurrency=10))

    found, read = await fetched_and_read(fetches)
    assert found == 10
    assert read < 200
    found, read = await fetched_and_read(fetches)
    assert found == 0
    assert read < 100


async def test_ranges_are_kept(fetches: Fetches) -> None:
    """After a slow fetch the next ones start at watermarks."""
    connection = fetches.connection
    await fill(connection, 10)
    await register(connection, Limit("x", concurrency=10))
    late = await connection.fetchval(f"select date_part('epoch', max(run_at)) - 0.0035 from {JOBS}")
    ranges = ([-32768, 0, 1], [-1, 0, 32767], [float("-inf"), late, float("-inf")])
    assert len((await fetches.fetch(10, "x", ranges=ranges))[0]) == 4


RANGES = ([-32768], [32767], [float("-inf")])


@pytest.mark.parametrize("ranges", [None, RANGES], ids=["all", "above watermarks"])
async def test_a_wide_queue_gives_as_many_jobs_as_it_is_wide(fetches: Fetches, ranges: Any) -> None:
    connection = fetches.connection
    await fill(connection, 20)
    await widen(connection, "q", 3)
    await register(connection, Limit("x", concurrency=10))
    assert len((await fetches.fetch(1, "x", is_wide=True, ranges=ranges))[0]) == 1
    other = Fetches(connection, fetches.tasks, "pool-b")
    jobs, state = await other.fetch(10, "x", is_wide=True, ranges=ranges)
    assert (len(jobs), state.room, state.is_full) == (2, 9, False)
    assert (await fetches.fetch(10, "x", is_wide=True, ranges=ranges))[0] == []
    locked = await connection.fetch(
        "select queue.queue_name, queue.locked_by = job.locked_by as is_own "
        f"from {JOBS} job join graphile_worker._private_job_queues queue on queue.id = job.job_queue_id "
        "where job.locked_at is not null order by 1"
    )
    assert [tuple(row) for row in locked] == [("q", True), ("q [2]", True), ("q [3]", True)]


async def test_the_limit_bounds_a_wide_queue(fetches: Fetches) -> None:
    connection = fetches.connection
    await fill(connection, 20)
    await widen(connection, "q", 5)
    await register(connection, Limit("x", concurrency=2))
    jobs, state = await fetches.fetch(10, "x", is_wide=True)
    assert (len(jobs), state.is_full) == (2, True)


async def test_it_reads_few_rows_of_a_wide_queue(fetches: Fetches) -> None:
    connection = fetches.connection
    await fill(connection, 50_000)
    await widen(connection, "q", 3)
    await connection.execute(f"analyze {JOBS}")
    await register(connection, Limit("x", concurrency=10))
    found, read = await fetched_and_read(fetches, is_wide=True)
    assert found == 3
    assert read < 300
