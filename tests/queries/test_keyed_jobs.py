"""Jobs with a key beside a held batch: it locks none of them, and an ordinary statement takes their share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import asyncpg
import pytest

from graphile_worker.database.statements.fetch import FROM_START, ranges
from graphile_worker.database.statements.held_batches import (
    ID,
    KEYED_SHARE,
    CursorPosition,
    Place,
    first_keyed,
    get_held_jobs,
    get_keyed_jobs,
    get_tied_jobs,
    last_place,
)
from graphile_worker.values.flags import FlagRules
from plans.backlogs import FOREIGN, LATER, OURS, SIZE, jobs
from plans.desks import STATISTICS, Desk, desk_in, filled_databases
from plans.explaining import tune
from queries.statements import Statements
from support.server import DatabaseServer
from support.working import SCHEMA

LIMIT = 100
WITH_KEYS = f"update {SCHEMA}._private_jobs set key = 'k' || id where key is null"


@pytest.fixture
async def session(database_url: str, statements: Statements) -> AsyncIterator[Any]:
    """A session with a transaction, like that of a batch."""
    connection = await asyncpg.connect(database_url)
    await tune(connection, statements.schema)
    await connection.execute("begin")
    yield connection
    await connection.close()


async def add(
    statements: Statements, count: int, *, keyed: Sequence[int] = (), priority: int = 0, is_tied: bool = False
) -> list[int]:
    """Jobs a second apart, or all at once; those with these numbers have a key. Their ids."""
    rows = await statements.connection.fetch(
        f"""
        insert into {SCHEMA}._private_jobs (task_id, priority, run_at, key)
        select $1, $4::integer, now() - interval '1 hour' + n * $5::integer * interval '1 second',
            case when n = any ($3::integer[]) then 'key ' || $4::integer || ' ' || n end
        from generate_series(0, $2::integer - 1) n returning id
        """,
        *(next(iter(statements.tasks)), count, keyed, priority, 0 if is_tied else 1),
    )
    return [row["id"] for row in rows]


async def held(statements: Statements, session: Any, limit: int = LIMIT, **terms: Any) -> Sequence[Any]:
    return await get_held_jobs(session, statements.schema, tasks=statements.tasks, limit=limit, **terms)


async def keyed_up_to(statements: Statements, place: Place, limit: int = LIMIT) -> list[int]:
    found = await get_keyed_jobs(
        statements.connection,
        statements.schema,
        up_to=place,
        pool_id=statements.pool_id,
        tasks=statements.tasks,
        limit=limit,
    )
    return sorted(job.id for job in found)


async def free(statements: Statements) -> list[int]:
    """The jobs whose rows no transaction has locked."""
    rows = await statements.connection.fetch(f"select id from {SCHEMA}._private_jobs for update skip locked")
    return sorted(row["id"] for row in rows)


READERS = {
    "from the start": None,
    "above a watermark": ranges({0: FROM_START}),
    "in a gap": ranges({}),
}


@pytest.mark.parametrize("reader", READERS)
async def test_rows_with_a_key_are_passed_and_not_locked(
    statements: Statements, session: Any, reader: str
) -> None:
    ids = await add(statements, 20, keyed=[0, 7, 19])
    rows = await held(statements, session, ranges=READERS[reader])
    assert [row[ID] for row in rows] == [id_ for n, id_ in enumerate(ids) if n not in (0, 7, 19)]
    assert await free(statements) == [ids[0], ids[7], ids[19]]


async def test_a_fetch_by_id_passes_them_too(statements: Statements, session: Any) -> None:
    ids = await add(statements, 20, keyed=[0, 7], is_tied=True)
    run_at = await statements.connection.fetchval(
        f"select date_part('epoch', run_at) from {SCHEMA}._private_jobs limit 1"
    )
    ties = CursorPosition(0, run_at, ids[0] - 1)
    rows = await get_tied_jobs(
        session,
        statements.schema,
        ties=ties,
        ranges=([], [], []),
        tasks=statements.tasks,
        limit=LIMIT,
        among_others=True,
    )
    assert [row[ID] for row in rows] == [id_ for n, id_ in enumerate(ids) if n not in (0, 7)]
    assert await free(statements) == [ids[0], ids[7]]
    assert first_keyed(rows) == last_place(rows)


async def test_what_a_batch_has_passed_is_locked_up_to_its_last_job(
    statements: Statements, session: Any
) -> None:
    ids = await add(statements, 40, keyed=[3, 10, 30])
    better = await add(statements, 3, keyed=[1], priority=-1)
    worse = await add(statements, 3, keyed=[0], priority=1)
    rows = await held(statements, session, limit=30)
    assert [row[ID] for row in rows[:2]] == [better[0], better[2]]
    keyed = first_keyed(rows)
    assert keyed is not None
    assert keyed.priority == -1
    assert await keyed_up_to(statements, last_place(rows)) == [ids[3], ids[10], better[1]]
    assert set(await free(statements)) >= {ids[30], *worse}


@pytest.mark.parametrize("reader", READERS)
async def test_a_batch_ends_before_too_many_of_them(
    statements: Statements, session: Any, reader: str
) -> None:
    """What it passes is few, and so is what comes before what it passes."""
    ids = await add(statements, 60, keyed=range(0, 60, 2))
    rows = await held(statements, session, ranges=READERS[reader])
    most = LIMIT // KEYED_SHARE
    assert [row[ID] for row in rows] == ids[1 : 2 * most : 2]
    assert len(await keyed_up_to(statements, last_place(rows))) == most


async def test_none_is_taken_if_too_many_of_them_come_with_the_first(
    statements: Statements, session: Any
) -> None:
    await add(statements, 60, keyed=range(0, 60, 2), is_tied=True)
    assert await held(statements, session) == []
    rows = await held(statements, session, limit=400)
    assert len(rows) == 30
    ties = CursorPosition(0, last_place(rows).run_at, 0)
    tied = await get_tied_jobs(
        session,
        statements.schema,
        ties=ties,
        ranges=([], [], []),
        tasks=statements.tasks,
        limit=LIMIT,
        among_others=True,
    )
    assert tied == []


OTHERS = {
    "of a task that this worker does not have": "task_id = (select max(id) from {schema}._private_tasks)",
    "later": "run_at = now() + interval '1 hour'",
    "locked": "locked_at = now(), locked_by = 'another'",
    "failed": "attempts = 25",
    "held back": """flags = '{{"no": true}}'""",
}


@pytest.mark.parametrize("change", OTHERS)
async def test_others_do_not_end_a_batch(statements: Statements, session: Any, change: str) -> None:
    await statements.connection.execute(
        f"insert into {SCHEMA}._private_tasks (identifier) values ('foreign')"
    )
    others = await add(statements, 30, keyed=range(30), priority=-1)
    changes = OTHERS[change].format(schema=SCHEMA)
    await statements.connection.execute(
        f"update {SCHEMA}._private_jobs set {changes} where id = any ($1)", others
    )
    ids = await add(statements, 20)
    rows = await held(statements, session, flags=FlagRules(("no",)))
    assert [row[ID] for row in rows] == ids
    assert first_keyed(rows) is None


async def test_nothing_is_held_if_they_have_too_many_priorities(statements: Statements, session: Any) -> None:
    ids = await add(statements, 5, priority=-100)
    await statements.connection.execute(
        f"insert into {SCHEMA}._private_jobs (task_id, priority, key) "
        "select $1, n, 'key ' || n from generate_series(1, 51) n",
        next(iter(statements.tasks)),
    )
    assert await held(statements, session) == []
    await statements.connection.execute(f"delete from {SCHEMA}._private_jobs where priority = 51")
    assert [row[ID] for row in await held(statements, session)] == ids


# -- plans -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[OURS, FOREIGN])
def keyed_databases(
    request: pytest.FixtureRequest, server: DatabaseServer, template_database: str
) -> Iterator[tuple[str, dict[str, str]]]:
    """Databases with very many jobs with a key in front, of our task or another one."""
    task = request.param
    ready = -5 if task == OURS else 5  # a fetch has to read past ready jobs of others in front of its own
    backlog = jobs(SIZE, task=task, priority=ready), jobs(SIZE, task=task, priority=-4, run_at=LATER)
    with filled_databases(server, template_database, (*backlog, WITH_KEYS)) as found:
        yield task, found


@pytest.mark.parametrize("statistics", STATISTICS)
async def test_few_of_many_are_read(keyed_databases: tuple[str, dict[str, str]], statistics: str) -> None:
    task, urls = keyed_databases
    async with desk_in(urls[statistics]) as desk:
        await desk.make_ready()
        await check(desk, task)
    async with desk_in(urls[statistics]) as desk:
        await desk.connection.execute(jobs(LIMIT, priority=-6))
        rows = await get_held_jobs(desk.explaining, desk.schema, tasks=desk.tasks, limit=LIMIT // 2)
        assert len(rows) == LIMIT // 2


async def check(desk: Desk, task: str) -> None:
    gaps = ranges({-5: FROM_START, 0: FROM_START}) if task == OURS else ranges({0: FROM_START})
    for within in (None, gaps):
        rows = await get_held_jobs(desk.explaining, desk.schema, tasks=desk.tasks, limit=LIMIT, ranges=within)
        if task == OURS:
            assert rows == []  # an ordinary fetch takes those with keys
    if task == OURS:
        found = await get_keyed_jobs(
            desk.explaining,
            desk.schema,
            up_to=Place(0, 0.0),
            pool_id="pool",
            tasks=desk.tasks,
            limit=LIMIT,
        )
        assert len(found) == LIMIT // KEYED_SHARE + 1
    for plan in desk.explaining.plans:
        assert plan.touched <= 5 * LIMIT + 20, plan.describe()
