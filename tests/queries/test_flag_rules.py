"""Rules for flags: a table of rules and flags of jobs, in the pure function and in every statement."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from msgspec.structs import astuple

from graphile_worker import Limit
from graphile_worker.database.sql import load
from graphile_worker.database.statements.fetch import (
    Ranges,
    flag_terms,
    get_fair_jobs,
    get_urgent_jobs,
    get_wide_jobs,
    list_priorities,
    load_routed,
    may_queues_be_next,
)
from graphile_worker.database.statements.held_batches import (
    ID,
    CursorPosition,
    Place,
    get_held_jobs,
    get_keyed_jobs,
    get_tied_jobs,
)
from graphile_worker.database.statements.limits import get_limited_jobs, register_limits
from graphile_worker.database.statements.write import write
from graphile_worker.database.statements.write_plan import (
    Continuation,
    ErrorRecord,
    Failure,
    Outcomes,
    WritePlanner,
)
from graphile_worker.values.flags import FlagRules
from graphile_worker.values.schema_name import SchemaName
from queries.statements import Statements, statements_on
from support.cases import Cases
from support.working import SCHEMA, Jobs

POOL = "pool-1"
LIMIT = 100
ODD = ["it's", 'a "quote"', "back\\slash", "{a,b}", "ümlaut", "NULL", "", " a "]
FLAGS: dict[str, list[str] | None] = {
    "none": None,
    "a": ["a"],
    "b": ["b"],
    "ab": ["a", "b"],
    "abc": ["a", "b", "c"],
    "A": ["A"],
    "ours": ["py:keep", "py:tag=a"],
    "a ours": ["a", "py:keep=3600"],
    "py": ["py"],
    "odd": ODD,
}
"""The flags of jobs, by a name for each."""
CASES: list[tuple[FlagRules, str]] = [
    (FlagRules(), "none, a, b, ab, abc, A, ours, a ours, py, odd"),
    (FlagRules(("a",)), "none, b, A, ours, py, odd"),
    (FlagRules((), ("a",)), "a, ab, abc, a ours"),
    (FlagRules((), ("a", "b")), "a, b, ab, abc, a ours"),
    (FlagRules((), ("nobody has it",)), ""),
    (FlagRules((), (), ()), "none, ours"),
    (FlagRules((), (), ("a",)), "none, a, ours, a ours"),
    (FlagRules((), (), ("a", "b", "z")), "none, a, b, ab, ours, a ours"),
    (FlagRules(("b",), ("a",)), "a, a ours"),
    (FlagRules(("a",), ("a",)), ""),
    (FlagRules(("b",), (), ("a", "b")), "none, a, ours, a ours"),
    (FlagRules((), ("a",), ("a",)), "a, a ours"),
    (FlagRules((), ("b",), ("a", "b")), "b, ab"),
    (FlagRules((), ("b",), ("a",)), ""),
    (FlagRules((), ("py:keep",), ()), "ours"),
    (FlagRules(("py:keep",), (), ()), "none"),
    (FlagRules(("c",), ("a", "b"), ("a", "b", "c")), "a, b, ab, a ours"),
    (FlagRules(("A",), ("a", "A"), None), "a, ab, abc, a ours"),
    (FlagRules((), (), tuple(ODD)), "none, ours, odd"),
    (FlagRules((), ('a "quote"',), tuple(ODD)), "odd"),
    (FlagRules((), ("back\\slash",)), "odd"),
    (FlagRules(("{a,b}",), (), tuple(ODD)), "none, ours"),
]
"""Rules, and the names of the flags that they take."""

Found = Awaitable[list[int]]
Path = Callable[[Statements, FlagRules], Found]


def taken(names: str) -> set[str]:
    return set(names.split(", ")) - {""}


def test_the_pure_function() -> None:
    with Cases() as cases:
        for rules, expected in CASES:
            with cases(rules):
                found = {name for name, flags in FLAGS.items() if rules.takes(flags or ())}
                assert found == taken(expected)


@pytest.fixture
async def statements(connection: Any) -> Statements:
    found = await statements_on(connection)
    await register_limits(connection, SchemaName(), {Limit("some", concurrency=1000): ["hello"]})
    return found


# -- jobs for each path --------------------------------------------------------------------------------------


async def add(jobs: Jobs, **options: Any) -> dict[int, str]:
    """A job for each of the flags, due at one time; their ids. `options` may be functions of the name."""
    ids = {}
    for name, flags in FLAGS.items():
        given = {key: value(name) if callable(value) else value for key, value in options.items()}
        ids[await jobs.add("hello", flags=flags, **given)] = name
    await jobs.connection.execute(
        f"update {SCHEMA}._private_jobs set run_at = date_trunc('second', now()) - interval '1 hour'"
    )
    return ids


in_queues = {"queue": lambda name: f"queue of {name}"}
with_keys = {"key": lambda name: f"key of {name}"}
KNOWN: Ranges = ([0], [0], [float("-inf")])
GAP: Ranges = ([-5], [5], [float("-inf")])


def terms(statements: Statements, rules: FlagRules) -> dict[str, Any]:
    return {"tasks": statements.tasks, "limit": LIMIT, "flags": rules}


def fetch(function: Any, **options: Any) -> Path:
    """A statement that locks jobs for a pool."""

    async def path(statements: Statements, rules: FlagRules) -> list[int]:
        found = await function(
            statements.connection, statements.schema, pool_id=POOL, **terms(statements, rules), **options
        )
        return [job.id for job in (found[0] if isinstance(found, tuple) else found)]

    return path


def hold(function: Any, **options: Any) -> Path:
    """A statement that holds jobs."""

    async def path(statements: Statements, rules: FlagRules) -> list[int]:
        given = {key: await value(statements) if callable(value) else value for key, value in options.items()}
        found = await function(statements.connection, statements.schema, **terms(statements, rules), **given)
        return [row[ID] for row in found]

    return path


async def first_tie(statements: Statements) -> CursorPosition:
    row = await statements.connection.fetchrow(
        f"select date_part('epoch', run_at) as run_at, id from {SCHEMA}._private_jobs order by id limit 1"
    )
    return CursorPosition(0, row["run_at"], row["id"] - 1)


async def announced(statements: Statements, rules: FlagRules) -> list[int]:
    return [job.id for job in await statements.fetch_announced(LIMIT, flags=rules)]


def plain(ranges: Ranges | None) -> Path:
    async def path(statements: Statements, rules: FlagRules) -> list[int]:
        return [job.id for job in await statements.fetch_plain(LIMIT, flags=rules, ranges=ranges)]

    return path


def whole(ranges: Ranges | None) -> Path:
    async def path(statements: Statements, rules: FlagRules) -> list[int]:
        return [job.id for job in await statements.fetch(LIMIT, flags=rules, ranges=ranges)]

    return path


def continued(how: str, *, is_wide: bool) -> Path:
    """What a write locks next: each queue has a running job, whose outcome is written."""

    async def path(statements: Statements, rules: FlagRules) -> list[int]:
        connection = statements.connection
        rows = await connection.fetch(
            f"insert into {SCHEMA}._private_jobs (task_id, job_queue_id, attempts, locked_by, locked_at) "
            f"select $1, id, 1, $2, now() from {SCHEMA}._private_job_queues returning id, job_queue_id",
            next(iter(statements.tasks)), POOL,
        )  # fmt: skip
        await connection.execute(
            f"update {SCHEMA}._private_job_queues set locked_by = $1, locked_at = now()", POOL
        )
        ids = [row["id"] for row in rows]
        record = None
        if how == "keep":
            record = ErrorRecord(
                seconds=1.0, retention=None, keep_error_seconds=None, error_type="E", traceback="",
                fingerprint="",
            )  # fmt: skip
        outcomes = Outcomes(
            completed=ids if how == "complete" else (),
            failed=() if how == "complete" else [Failure(id_, "no", None, 1, record) for id_ in ids],
            queues=[row["job_queue_id"] for row in rows],
        )
        continuation = Continuation(tasks=statements.tasks, flags=rules, is_wide=is_wide)
        plan = WritePlanner(POOL, SCHEMA).plan(outcomes, continuation)
        assert ("@routed" in plan.statement) == rules.is_routed
        written = await write(connection, statements.schema, plan)
        return [job.id for job in written.jobs]

    return path


PATHS: dict[str, tuple[Path, dict[str, Any]]] = {
    "announced": (announced, {}),
    "plain": (plain(None), {}),
    "plain above watermarks": (plain(KNOWN), {}),
    "plain in a gap": (plain(GAP), {}),
    "whole": (whole(None), {}),
    "whole above watermarks": (whole(KNOWN), {}),
    "whole, queues": (whole(None), in_queues),
    "whole above watermarks, queues": (whole(KNOWN), in_queues),
    "urgent": (fetch(get_urgent_jobs, ranges=KNOWN), {}),
    "urgent, queues": (fetch(get_urgent_jobs, ranges=KNOWN), in_queues),
    "wide": (fetch(get_wide_jobs), {}),
    "wide, queues": (fetch(get_wide_jobs), in_queues),
    "wide above watermarks, queues": (fetch(get_wide_jobs, ranges=KNOWN), in_queues),
    "fair": (fetch(get_fair_jobs, after=0, is_wide=False), {}),
    "fair, queues": (fetch(get_fair_jobs, after=0, is_wide=False), in_queues),
    "fair and wide, queues": (fetch(get_fair_jobs, after=0, is_wide=True), in_queues),
    "limited": (fetch(get_limited_jobs, limits=["some"]), {}),
    "limited above watermarks": (fetch(get_limited_jobs, limits=["some"], ranges=KNOWN), {}),
    "limited, queues": (fetch(get_limited_jobs, limits=["some"]), in_queues),
    "limited and wide, queues": (fetch(get_limited_jobs, limits=["some"], is_wide=True), in_queues),
    "held": (hold(get_held_jobs), {}),
    "held above watermarks": (hold(get_held_jobs, ranges=KNOWN), {}),
    "held in a gap": (hold(get_held_jobs, ranges=GAP), {}),
    "held by id": (hold(get_tied_jobs, ties=first_tie, ranges=([], [], [])), {}),
    "held by id among others": (
        hold(get_tied_jobs, ties=first_tie, ranges=([], [], []), among_others=True), {},
    ),
    "with a key": (fetch(get_keyed_jobs, up_to=Place(1, 0.0)), with_keys),
    **{
        f"{how} and go on{', wide' if is_wide else ''}": (continued(how, is_wide=is_wide), in_queues)
        for how in ("complete", "fail", "keep")
        for is_wide in (False, True)
    },
}  # fmt: skip


@pytest.mark.parametrize("name", PATHS)
async def test_a_statement_takes_what_the_rules_take(name: str, jobs: Jobs, statements: Statements) -> None:
    path, options = PATHS[name]
    ids = await add(jobs, **options)
    connection = jobs.connection
    with Cases() as cases:
        for rules, expected in CASES:
            with cases(rules):
                transaction = connection.transaction()
                await transaction.start()
                try:
                    found = {ids[id_] for id_ in await path(statements, rules)}
                    refused = await connection.fetch(
                        f"select attempts, locked_by from {SCHEMA}._private_jobs where id = any ($1)",
                        [id_ for id_, each in ids.items() if each not in found],
                    )
                finally:
                    await transaction.rollback()
                assert found == taken(expected)
                assert {tuple(row) for row in refused} <= {(0, None)}


async def test_a_queue_may_be_next_if_the_rules_take_a_job_of_it(jobs: Jobs, statements: Statements) -> None:
    ids = await add(jobs, **in_queues)
    with Cases() as cases:
        for rules, expected in CASES:
            for id_, name in ids.items():
                with cases(rules, name):
                    transaction = jobs.connection.transaction()
                    await transaction.start()
                    await jobs.connection.execute(f"delete from {SCHEMA}._private_jobs where id <> $1", id_)
                    found = await may_queues_be_next(
                        jobs.connection, statements.schema, tasks=statements.tasks, flags=rules
                    )
                    await transaction.rollback()
                    assert found == (name in taken(expected))


async def test_what_is_measured_beside_a_slow_fetch_is_what_the_rules_take(
    jobs: Jobs, statements: Statements
) -> None:
    """It reads on until it has found as many jobs as wanted: more than there are, if some are refused."""
    await add(jobs)
    ask = partial(list_priorities, jobs.connection, statements.schema, tasks=statements.tasks, limit=LIMIT)
    for rules, _ in CASES:
        assert (await ask(flags=rules)).priorities == [0]


async def test_flags_that_are_no_object_are_in_no_list(jobs: Jobs, statements: Statements) -> None:
    """Nothing writes such flags, but a fetch that fails because of a row would stop a worker."""
    for flags in ("[1]", '"x"', "3", "null", "{}"):
        await jobs.connection.execute(
            f"update {SCHEMA}._private_jobs set flags = $2::text::jsonb where id = $1",
            await jobs.add("hello"), flags,
        )  # fmt: skip
    for rules, count in (
        (FlagRules((), (), ()), 5),
        (FlagRules((), ("a",)), 0),
        (FlagRules(("a",), (), ("b",)), 5),
    ):
        transaction = jobs.connection.transaction()
        await transaction.start()
        assert len(await statements.fetch(LIMIT, flags=rules)) == count
        await transaction.rollback()


async def test_a_queue_whose_first_job_is_refused_goes_on_with_the_next(
    jobs: Jobs, statements: Statements
) -> None:
    await jobs.add("hello", queue="q", flags=["a"])
    wanted = await jobs.add("hello", queue="q", flags=["b"])
    await jobs.add("hello", queue="q", flags=["a"])
    last = await jobs.add("hello", queue="q", flags=["b", "c"])
    rules = FlagRules((), ("b",))
    (first,) = await statements.fetch(LIMIT, flags=rules)
    assert first.id == wanted
    continuation = Continuation(tasks=statements.tasks, flags=rules)
    (second,) = await statements.write(completed=[first], continuation=continuation)
    assert second.id == last
    assert await statements.write(completed=[second], continuation=continuation) == []
    assert [(row["attempts"], row["locked_by"]) for row in await jobs.all()] == [(0, None)] * 2
    assert await jobs.locked() == 0


def test_without_further_rules_a_statement_is_what_it_was() -> None:
    """Workers that have none of these rules do not pay for them."""
    schema = SchemaName()
    for rules in (FlagRules(), FlagRules(("a",))):
        for name in ("fetch/get_plain_jobs", "held/get_held_jobs", "limits/get_limited_jobs"):
            assert load_routed(name, schema, rules) == load(name, schema)
        assert flag_terms(rules) == (list(astuple(rules)[0]) or None)
    assert "jsonpath" not in load("fetch/get_jobs", schema)
    assert "jsonpath" in load_routed("fetch/get_jobs", schema, FlagRules((), ("a",)))
