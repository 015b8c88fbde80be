"""Every name in our SQL has an exact match in pg_catalog or is qualified, so nobody can take it over."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest

from graphile_worker.database.connections.encoding import teach_arrays
from graphile_worker.database.sql import load
from graphile_worker.values.schema_name import SchemaName
from hostile.exact_calls import PRINT_TREES, Reader, Watched
from hostile.invaders import CANNOT_BE_PREPARED, paths, text_of
from recovery.dead import Graveyard

SCHEMA = SchemaName().quoted
WITHOUT_SQL = re.compile(r"(?:(?:loop|end|else|elsif|get diagnostics|raise|commit)\b|return(?: \w+)?;)")

_SPEC = "array[row('a', '[1]', 'q', null, 3, 'k', 1, array['f'])]::$S.job_spec[]"
_PLAIN = "array[row('b', '[1]', 'q', null, 3, null, 1, array['f'])]::$S.job_spec[]"
_RANGES = "array[0::smallint], array[9::smallint], array[0::double precision]"
_QUEUES = "array(select id from $S._private_job_queues where queue_name = 'q')"


def _limited(suffix: str, flags: str) -> Iterator[str]:
    """Limits: unknown, without and with named queues, narrow and wide; then waiting for each other."""

    def fetch(names: str, ranges: str = "null, null, null", *, is_wide: bool = False) -> str:
        tasks = "(select pg_catalog.array_agg(id)::text from $S._private_tasks)"
        arguments = f"'pool', {tasks}, 1, {flags}, null, {ranges}, '{{{names}}}', {is_wide}"
        return f"select from $S._private_py_get_limited_jobs{suffix}({arguments})"

    yield "delete from $S._private_py_limits"
    yield "insert into $S._private_py_limits (name, code_concurrency) values ('c', 100), ('full', 1)"
    yield (
        "insert into $S._private_py_limits (name, code_starts, code_period) "
        "values ('r', 100, 1), ('slow', 1, 9)"
    )
    yield fetch("unknown")
    for is_wide in (False, True):
        for queue in ("null", "'q'"):
            yield "delete from $S._private_jobs"
            yield f"select $S.add_job('a', queue_name => {queue}) from pg_catalog.generate_series(1, 20)"
            yield fetch("c,r", is_wide=is_wide)
            yield "update $S._private_job_queues set locked_at = null, locked_by = null"
            yield fetch("c,r", _RANGES, is_wide=is_wide)
            yield "update $S._private_job_queues set locked_at = null, locked_by = null"
    yield "select $S.add_job('a') from pg_catalog.generate_series(1, 20)"
    yield fetch("full,slow")
    yield fetch("full,slow")
    yield "update $S._private_py_limits set code_concurrency = 5, refilled_at = now() + interval '1 hour'"
    yield fetch("full,slow")


def _admitted() -> Iterator[str]:
    """Limits of held batches: unknown, with room, with too little; then others wait for what is left."""

    def admit(names: str, count: int = 1) -> str:
        ids = f"array(select id from $S._private_jobs limit {count})"
        return f"select from $S._private_py_admit_held_jobs('pool', txid_current(), {ids}, '{{{names}}}')"

    yield admit("unknown")
    yield "update $S._private_py_limits set code_concurrency = 2, tokens = 1"
    yield "update $S._private_py_limits set code_starts = 100, code_period = 1 where name <> 'slow'"
    yield admit("c,r")
    yield "update $S._private_py_limits set code_concurrency = 0"
    yield admit("full,slow", 9)
    yield "update $S._private_py_limits set code_concurrency = 50, refilled_at = now() + interval '1 hour'"
    yield admit("full,slow", 9)
    yield admit("full")


def _unique(until: str) -> str:
    arguments = f"'new', '[]', 'new', null, null, 'u', null, array['f'], '{until}', true"
    return f"select $S._private_py_add_unique_job({arguments})"


ROADS = (
    "select $S.add_job('a', '[1]', job_key => 'k', queue_name => 'q', flags => array['f', 'g'])",
    "select $S.add_job('a', '[2]', job_key => 'k', job_key_mode => 'preserve_run_at')",
    "select $S.add_job('a', '[3]', job_key => 'k', job_key_mode => 'unsafe_dedupe')",
    "select $S.add_job('a')",
    f"select $S.add_jobs({_SPEC})",
    f"select $S.add_jobs({_PLAIN})",
    f"select $S.add_jobs({_SPEC}, true)",
    "select $S.reschedule_jobs(array[1::bigint], now(), 1, 1, 2)",
    "select $S.permanently_fail_jobs(array[1::bigint], 'x')",
    f"select $S.add_jobs({_SPEC})",
    "select $S.complete_jobs(array[2::bigint])",
    "select $S.force_unlock_workers(array['x'])",
    "select $S.remove_job('k')",
    "select $S.add_job('a', job_key => 'k2')",
    "update $S._private_jobs set locked_at = now()",
    "select $S.remove_job('k2')",
    "call $S._private_py_add_plain_job('a', '[]', now(), 1, 1, array['x'], null, null, null, null, null)",
    "select $S._private_py_ready_jobs(), $S._private_py_oldest_ready_age()",
    _unique("waiting"),
    _unique("waiting or running"),
    "update $S._private_jobs set locked_at = now() where key = 'u'",
    _unique("waiting or running"),
    _unique("waiting"),
    "select $S._private_py_add_partition('$S._private_py_history', date '2001-01-01')",
    "select $S._private_py_add_partition('$S._private_py_history', date '2001-01-01')",
    "select $S._private_py_drop_partitions('$S._private_py_history', date '2001-02-01')",
    "delete from $S._private_py_workers",
    # The register for Rust workers.
    "select $S.worker_heartbeat('pool-x', '{}')",
    "select from $S.list_stale_workers('1 minute')",
    "select from $S.list_orphan_locked_workers('1 minute')",
    "select $S.recover_dead_worker_jobs(array['pool-x'], '1 minute')",
    "select $S.delete_stale_workers(array['pool-y'])",
    "select $S.worker_deregister('pool-x')",
    *_limited("", "array['never']"),
    *_admitted(),
    *_limited("_by_flags", "array['{never}', null, '{f}']"),
    # Wide queues: wider, narrower, and then without the tracks that were closed.
    f"select $S._private_py_set_tracks({_QUEUES}, array[4])",
    f"select $S._private_py_set_tracks({_QUEUES}, array[4])",
    f"select $S._private_py_set_tracks({_QUEUES}, array[2])",
    f"select $S._private_py_set_tracks({_QUEUES}, array[3])",
)


@pytest.fixture
async def watched(database_url: str) -> AsyncIterator[Watched]:
    connection = await asyncpg.connect(database_url)
    try:
        watched = Watched(connection, await Reader.of(connection))
        teach_arrays(connection)  # or the driver's own questions would be looked at, too
        await connection.execute(PRINT_TREES)
        yield watched
    finally:
        await connection.close(timeout=60)


@pytest.mark.parametrize(
    "statement",
    [
        "select exp(1)",
        "select array[1] <> '{}'",
        "select jsonb '{}' -> 'a'",
        "select jsonb '{}' -> $1",
        "select interval '1 second' * $1",
        "select text 'x' || 1",
        "select 1 in (2, 3::numeric)",
        "select 1 = any (array[1.5])",
        "select 1 in (select 2.5)",
        "select (1, 2) < (1, 2.5)",
        "select case 1 when 2.5 then 3 end",
        "select nullif(1, 2.5)",
        "select 1 is distinct from 2.5",
        "select 1 between 0 and 2.5",
        "select varchar 'x' like 'y'",
        "select ~ cidr '10.0.0.0/8'",
        "select from (select 1 as a) b join (select 1.5 as a) c using (a)",
        "select count(1)",
        "select array_agg(true)",
        "select lag(1) over ()",
        "select from unnest(array[1])",
        "select nextval('x')",
        "select lower('x')",
        "select lower($1)",
        "select current_setting('port')::integer",
        "select lower((('x')))::text",
        "select format('%s', 1)",
        "select oid '1' = regclass 'pg_class'",
        "select array(select 1) = array(select 2)",
        "select (select 1) + (select 1.5)",
        "select 'ä' || 'ö' || 1",
    ],
)
async def test_what_others_could_take_over_is_found(watched: Watched, statement: str) -> None:
    """Without this the tests below could not fail."""
    if "nextval" in statement:
        await watched.connection.execute("create sequence x")
    assert await watched.prepare(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "select exp(1::double precision)",
        "select array[1] operator(pg_catalog.<>) '{}'",
        "select pg_catalog.cardinality(array[1]) > 0",
        "select jsonb '{}' -> text 'a', '{}'::jsonb -> 'a'::text, jsonb '{}' -> $1::text",
        "select count(*), max(1), extract(epoch from now()), now() - interval '1 day'",
        "select from unnest(array[1], array[2])",
        "select pg_catalog.count(1), pg_catalog.lower('x'), lower('x'::text), date_part('epoch', now())",
        "select lower((('x'))::text), lower(('x')::text)::text, lower($1::text)",
        "select 1 in (2, 3), 1 between 0::bigint and 2, (1, 2) < (3, 4), text 'x' like 'y', 'x' || 'y'",
        "select pg_terminate_backend(1), row_number() over (), -1",
        "select $1::double precision * 2::double precision where $1 > 1::double precision",
        "select true where 'a' in (select 'b') and 1 = any ('{}')",
    ],
)
async def test_what_others_cannot_take_over_is_not_reported(watched: Watched, statement: str) -> None:
    assert await watched.prepare(statement) == []


async def test_every_call_of_every_statement_is_exact_or_qualified(watched: Watched) -> None:
    """Also if a driver writes parameters as literals: what is exact then is exact as well if it does not."""
    found: dict[str, list[str]] = {}
    for path, statement in statements():
        if inexact := await watched.prepare(statement, are_literals=True):
            found[path] = inexact
    assert found == {}
    assert len(list(statements())) > 300


@pytest.mark.parametrize(
    "sent",
    [
        {"integer": "smallint", "bigint": "smallint"},
        {"smallint": "integer", "bigint": "integer", "double precision": "integer"},
        {"double precision": "numeric", "text": "varchar"},
    ],
    ids=["as small integers", "as integers", "as decimals and varchar"],
)
async def test_it_does_not_depend_on_how_a_driver_sends_parameters(
    watched: Watched, connection: Any, sent: dict[str, str]
) -> None:
    """Our own leaves the types to the server. Others send those of Python's values."""
    if connection.get_server_version().major < 14:
        pytest.skip("before PostgreSQL 14, the server prints no tree of a statement with declared types")
    found: dict[str, list[str]] = {}
    for path, statement in statements():
        types = await parameters_of(connection, statement)
        if not sent.keys() & set(types):
            continue
        declared = ", ".join(sent.get(each, each) for each in types)
        if inexact := await watched.run(f"prepare tried ({declared}) as {statement}"):
            found[path] = inexact
        await watched.connection.execute("deallocate tried")
    assert found == {}


async def parameters_of(connection: Any, statement: str) -> list[str]:
    """The types of the parameters, as the server finds them."""
    await connection.execute(f"prepare tried as {statement}")
    types = await connection.fetchval(
        "select parameter_types::text[] from pg_prepared_statements where name = 'tried'"
    )
    await connection.execute("deallocate tried")
    return list(types)


def statements() -> Iterator[tuple[str, str]]:
    """Everything that can be prepared."""
    for path in paths():
        first = text_of(path).split()[0]
        if not path.startswith(("migrations/", "own_objects/")) and first not in CANNOT_BE_PREPARED:
            yield path, load(path, SchemaName()).rstrip().rstrip(";")


async def test_the_driver_asks_for_no_types(database_url: str) -> None:
    """Its question compares an oid with an integer, by an operator that anybody can define."""
    asked: list[list[int]] = []

    class Asking(asyncpg.Connection):  # type: ignore[misc]
        async def _introspect_types(self, typeoids: Any, timeout: Any) -> Any:
            asked.append(list(typeoids))
            return await super()._introspect_types(typeoids, timeout)

    connection = await asyncpg.connect(database_url, connection_class=Asking)
    try:
        await connection.prepare("select array[1]")
        assert asked, "the driver has another way to ask now"
        asked.clear()
        await connection.reload_schema_state()
        teach_arrays(connection)
        found = set()
        for path, statement in statements():
            await connection.prepare(statement)
            if asked:
                found.add((path, str(asked)))
                asked.clear()
        assert found == set()
    finally:
        await connection.close(timeout=60)


async def test_catalogs_are_qualified(connection: Any) -> None:
    """A temporary table of the same name comes before pg_catalog."""
    relations = await connection.fetchval(
        "select array_agg(relname::text) from pg_class where relnamespace = 'pg_catalog'::regnamespace"
    )
    found = {
        (path, name)
        for path in paths()
        if not path.startswith("own_objects/")
        for name in re.findall(r"(?:from|join|only|,)\s+(pg_\w+)\b(?!\s*[.(])", text_of(path))
        if name in relations
    }
    assert found == set()


async def test_functions_with_the_rights_of_their_owner_have_a_search_path_of_their_own(
    connection: Any,
) -> None:
    """With temporary objects, which any caller may create, at its end."""
    rows = await connection.fetch(
        "select proname, proconfig from pg_proc "
        "where pronamespace = 'graphile_worker'::regnamespace and prosecdef"
    )
    assert {(row["proname"], *row["proconfig"]) for row in rows} == {
        ("_private_py_ready_jobs", "search_path=pg_catalog, pg_temp"),
        ("_private_py_oldest_ready_age", "search_path=pg_catalog, pg_temp"),
        ("_private_py_note_death", "search_path=pg_catalog, pg_temp"),
    }


@pytest.mark.parametrize(
    ("query", "least"),
    [
        ("select adrelid::regclass, adbin::text from pg_attrdef, ours where adrelid = ours.oid", 30),
        ("select indexrelid::regclass, concat(indpred, indexprs) from pg_index, ours "
         "where indrelid = ours.oid", 10),
        ("select conname, conbin::text from pg_constraint, ours where conrelid = ours.oid", 5),
        ("select tgname, tgqual::text from pg_trigger, ours where tgrelid = ours.oid", 1),
        ("select ev_class::regclass, concat(ev_qual, ev_action) from pg_rewrite, ours "
         "where ev_class = ours.oid", 1),
    ],
    ids=["defaults", "indexes", "checks", "triggers", "views"],
)  # fmt: skip
async def test_every_call_of_every_stored_expression_is_exact(
    watched: Watched, query: str, least: int
) -> None:
    rows = await watched.connection.fetch(
        "with ours as (select oid from pg_class where relnamespace = 'graphile_worker'::regnamespace) "
        + query
    )
    trees = [(str(name), tree) for name, tree in rows if tree]
    assert [(name, each) for name, tree in trees for each in watched.reader.inexact(tree, None, "")] == []
    assert len(trees) >= least


async def test_every_call_of_every_function_is_exact_or_qualified(watched: Watched) -> None:
    """The bodies in PL/pgSQL are looked at as they are run, so every road through them is taken."""
    await Graveyard(watched.connection).bury("pool-dead")
    found = [each for statement in ROADS for each in await watched.run(statement.replace("$S", SCHEMA))]
    assert found == []
    with pytest.raises(asyncpg.PostgresError, match="job_key_mode is 'x'"):
        await watched.run(f"select {SCHEMA}.add_job('a', job_key => 'k', job_key_mode => 'x')")
    assert watched.reader.functions.keys() >= await functions_of(watched.connection, "sql", "plpgsql")
    assert "\n".join(await unseen(watched)) == ""


async def functions_of(connection: Any, *languages: str) -> set[str]:
    """The names of the functions in our schema."""
    rows = await connection.fetch(
        "select proname from pg_proc join pg_language on pg_language.oid = prolang "
        "where pronamespace = 'graphile_worker'::regnamespace and lanname = any ($1)",
        list(languages),
    )
    return {row["proname"] for row in rows}


async def unseen(watched: Watched) -> list[str]:
    """Statements in PL/pgSQL that were not run."""
    functions = await functions_of(watched.connection, "plpgsql")
    return [
        f"{name}, line {number}: {line}"
        for name in sorted(functions)
        for number, line in statements_in(watched.reader.bodies[name])
        if number not in watched.reader.functions[name]
    ]


def statements_in(body: str) -> Iterator[tuple[int, str]]:
    """The first line of each statement, with its number, without those that evaluate nothing."""
    lines = [line.partition("--")[0].strip() for line in body.splitlines()]
    has_begun, is_start = False, False
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        if has_begun and is_start and WITHOUT_SQL.match(line) is None:
            yield number, line
        has_begun = has_begun or line == "begin"
        is_start = line.endswith((";", "then", "loop", "else", "begin"))
