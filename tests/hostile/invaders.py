"""What another role puts into `public`, to be called in place of PostgreSQL's own.

PostgreSQL looks in `pg_catalog` first, but a candidate whose argument types are exactly those of the call
beats any that needs a conversion, in whatever schema it is: `exp(integer)` in `public` is called where only
`exp(double precision)` is built in. And `f('x')` is a conversion if there is a type `f`. So every name that
our SQL mentions gets functions or aggregates, a domain with a check, and a view if it is a table; every
operator gets all pairs of types; and one type has implicit casts from all others. Each of them counts its
calls in a sequence, which no rollback undoes.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from graphile_worker.database.sql import load, names
from graphile_worker.values.schema_name import SchemaName
from hostile.exact_calls import PRINT_TREES

ROLE = "gw_test_stranger"
OWN_TYPE = "public.hostile_row"
TYPES = (
    "smallint", "integer", "bigint", "real", "double precision", "numeric", "text", "name", "boolean", "json",
    "jsonb", "timestamptz", "interval", "oid", "regclass", "xid", "tid", "smallint[]", "integer[]",
    "bigint[]", "double precision[]", "text[]", "name[]", "boolean[]", "xid[]", "tid[]",
    "graphile_worker.job_spec[]", OWN_TYPE,
)  # fmt: skip
"""Types of the arguments of functions, in all combinations."""
MORE_TYPES = (
    "varchar", "bpchar", '"char"', "bytea", "uuid", "date", "time", "timestamp", "money", "inet", "pg_lsn",
    "xid8", "regproc", "regprocedure", "regoperator", "regtype", "regrole", "regnamespace", "oidvector",
    "int2vector", "bit", "point", "tsvector", "int4range", "tstzrange", "real[]", "numeric[]", "varchar[]",
    '"char"[]', "json[]", "jsonb[]", "date[]", "timestamp[]", "timestamptz[]", "interval[]", "oid[]",
    "regclass[]", "regtype[]", "uuid[]", "graphile_worker.job_spec", f"{OWN_TYPE}[]",
)  # fmt: skip
"""Further types of operators, and of functions of one argument. Those that a server lacks are left out."""
POLYMORPHIC = ("anyelement", "anyarray", "anynonarray", "anycompatible", "anycompatiblearray")
COMPARISONS = frozenset({"=", "<>", "<", ">", "<=", ">=", "?|"})
MOST_ARGUMENTS = 2  # calls with more are qualified: there is no end to the combinations

CANNOT_BE_PREPARED = ("alter", "call", "create", "drop", "lock", "truncate", "vacuum", "begin;")

_COMMENT = re.compile(r"--[^\n]*")
_TEXT = re.compile(r"'(?:[^']|'')*'")
_QUOTED = re.compile(r'"[^"]*"')
_CALL = re.compile(r"(?<![\w.$])(pg_catalog\.)?([a-z_][a-z0-9_]*)\s*\(")
_OPERATOR = re.compile(r"[-+*/<>=~!@#%^&|?]+")
_NOT_OPERATORS = frozenset({"=>", "*"})  # `count(*)`, `select *`; multiplication is added by name


@dataclass(frozen=True)
class Call:
    """What looks like a call of a function, be it only a list of columns."""

    name: str
    is_qualified: bool
    arguments: int
    has_names: bool


def paths() -> list[str]:
    """All SQL that runs in databases of users."""
    return [name for name in names() if not name.startswith("testing/")]


def text_of(path: str) -> str:
    """The SQL of a statement or script without comments and literals."""
    text = _TEXT.sub("''", _COMMENT.sub("", load(path, SchemaName())))
    return _QUOTED.sub("quoted", text)


def calls_in(text: str) -> Iterator[Call]:
    """Everything that looks like a call of one of PostgreSQL's functions."""
    for found in _CALL.finditer(text):
        inside = _until_closed(text, found.end())
        yield Call(found[2], found[1] is not None, _count(inside), "=>" in inside)


def operators_in(text: str) -> set[str]:
    """The operators that a text mentions."""
    return {found for found in _OPERATOR.findall(text) if found not in _NOT_OPERATORS} | {"*"}


def _until_closed(text: str, start: int) -> str:
    depth = 1
    for place in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return text[start:place]
    return text[start:]


def _count(arguments: str) -> int:
    depth, commas = 0, 0
    for sign in arguments:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(sign, 0)
        commas += sign == "," and depth == 0
    return commas + 1 if arguments.strip() and arguments.strip() != "*" else 0


async def invade(connection: Any) -> None:
    """Create them all, as a role that may do no more than to create objects in `public`.

    It creates one of each kind. Of functions and operators there are many thousands: the others are copies of
    its rows in the catalogs, which takes a tenth of the time.
    """
    texts = [text_of(path) for path in paths()]
    calls = [call for text in texts for call in calls_in(text)]
    unqualified = {(call.name, call.arguments) for call in calls if not call.is_qualified}
    wanted = [(*call, call in unqualified) for call in {(call.name, call.arguments) for call in calls}]
    if not await connection.fetchval("select exists (select from pg_roles where rolname = $1)", ROLE):
        await connection.execute(f"create role {ROLE}")
    await connection.execute(
        f"grant usage on schema graphile_worker to {ROLE}; grant usage, create on schema public to {ROLE}; "
        "create sequence public.hostile_calls; grant all on sequence public.hostile_calls to public; "
        "create temporary table wanted (name text, arguments integer, is_unqualified boolean); "
        "create temporary table types (id oid, kind text); create temporary table operators (name name); "
        "create temporary table words (name text); "
        f"grant select on wanted, types, words to {ROLE}"
    )
    await connection.executemany("insert into wanted values ($1, $2, $3)", wanted)
    operators = sorted({operator for text in texts for operator in operators_in(text)})
    await connection.executemany("insert into operators values ($1::text)", [(each,) for each in operators])
    words = sorted({word for text in texts for word in re.findall(r"[a-z_][a-z0-9_]*", text)})
    await connection.executemany("insert into words values ($1)", [(each,) for each in words])
    async with connection.transaction():
        await connection.execute(f"set local role {ROLE}")
        await connection.execute("set local check_function_bodies = off")
        await connection.execute(_OWN_TYPE)
        await connection.execute("reset role")
        for kind, names in (("both", TYPES), ("one", MORE_TYPES), ("any", POLYMORPHIC)):
            await connection.executemany(
                "insert into types select id, $2::text from to_regtype($1::text) id where id is not null",
                [(name, kind) for name in names],
            )
        await connection.execute(f"set local role {ROLE}")
        await connection.execute(_CREATED)
        await connection.execute("reset role")
        await connection.execute(
            _COPIED.replace("COMPARISONS", ", ".join(f"'{each}'" for each in COMPARISONS))
        )
    await connection.execute("drop table wanted, types, operators, words")


_BODY = """language plpgsql as $body$
    begin perform pg_catalog.nextval('public.hostile_calls'::pg_catalog.regclass); return null; end $body$"""
_OWN_TYPE = f"create type {OWN_TYPE} as (x integer)"
_CREATED = f"""
create function public.hostile_function() returns text {_BODY};
create function public.hostile_check(text) returns boolean {_BODY};
create function public.hostile_step(text) returns text {_BODY};
create function public.hostile_step(text, anyelement) returns text {_BODY};
create function public.hostile_step(text, anyelement, anyelement) returns text {_BODY};
create function public.hostile_comparison(integer[], integer[]) returns boolean {_BODY};
create operator public.<> (
    leftarg = integer[], rightarg = integer[], function = public.hostile_comparison
);
do $do$
declare
  each record;
  nth integer := 0;
begin
  for each in
    select distinct wanted.name, format_type(types.id, null) as type, wanted.arguments
    from wanted join pg_proc proc on proc.proname = wanted.name and proc.prokind = 'a'
      and proc.pronamespace = 'pg_catalog'::regnamespace
    join types on types.kind in ('both', 'one')
    where wanted.arguments in (1, 2)
    union select 'count', '*', 1
  loop
    execute format(
      'create aggregate public.%I (%s) (sfunc = public.hostile_step, stype = text)', each.name,
      each.type || case when each.arguments = 2 then ', ' || each.type else '' end
    );
  end loop;
  for each in select format_type(id, null) as type from types
    where kind in ('both', 'one') and id <> '{OWN_TYPE}'::regtype
  loop
    nth := nth + 1;
    execute format('create function public.hostile_cast(%s) returns {OWN_TYPE}', each.type)
      || $text$ {_BODY} $text$;
    execute format(
      'create cast (%s as {OWN_TYPE}) with function public.hostile_cast(%1$s) as implicit', each.type
    );
    execute format('create function public.hostile_cast_%s({OWN_TYPE}) returns %s', nth, each.type)
      || $text$ {_BODY} $text$;
    execute format(
      'create cast ({OWN_TYPE} as %s) with function public.hostile_cast_%s({OWN_TYPE}) as implicit',
      each.type, nth
    );
  end loop;
  -- Views and domains share their names with the types, in which a table is a row.
  for each in
    select distinct relname from pg_class join words on words.name = relname
    where relnamespace in ('pg_catalog'::regnamespace, 'graphile_worker'::regnamespace)
      and relkind in ('r', 'v', 'p')
  loop
    execute format('create view public.%I as select public.hostile_function() as oid', each.relname);
  end loop;
  for each in
    select name from words
    where exists (
      select from pg_proc where proname = name and pronamespace = 'pg_catalog'::regnamespace
    ) or exists (
      select from pg_type where typname = name and typnamespace = 'pg_catalog'::regnamespace
    ) or name in (select distinct wanted.name from wanted)
    union select typname from pg_type where oid in (select id from types where kind <> 'any')
      and typnamespace = 'pg_catalog'::regnamespace and typelem = 0
    except
    select relname::text from pg_class where relnamespace = 'public'::regnamespace
  loop
    execute format('create domain public.%I as text check (public.hostile_check(value))', each.name);
  end loop;
end
$do$
"""
_COPIED = """
insert into pg_proc
select copy.*
from (
  select
    (select greatest(max(oid::bigint), 16384) from pg_proc) + row_number() over () as oid,
    called.name, called.arguments,
    concat_ws(' ', nullif(one.id, 0), nullif(two.id, 0)) as types,
    coalesce(called.result, nullif(one.id, 0), 'text'::regtype) as result
  from (
    -- What a built-in one returns; where that depends on its arguments, the type of the first of them.
    select distinct on (wanted.name, wanted.arguments)
      wanted.*, case when type.typtype <> 'p' then proc.prorettype end as result
    from wanted
    join pg_proc proc on proc.proname = wanted.name and proc.pronamespace = 'pg_catalog'::regnamespace
      and proc.prokind <> 'a'
    join pg_type type on type.oid = proc.prorettype
    where wanted.arguments < 2 or wanted.arguments = 2 and wanted.is_unqualified
    order by wanted.name, wanted.arguments, proc.pronargs = wanted.arguments desc
  ) called
  join (select id, kind from types union all select 0::oid, 'none') one
    on case called.arguments when 0 then one.kind = 'none' when 1 then one.kind in ('both', 'one')
      else one.kind = 'both' end
  join (select id, kind from types union all select 0::oid, 'none') two
    on two.kind = case called.arguments when 2 then 'both' else 'none' end
) wanted,
pg_proc template,
jsonb_populate_record(template, jsonb_build_object(
  'oid', wanted.oid, 'proname', wanted.name, 'pronargs', wanted.arguments, 'proargtypes', wanted.types,
  'prorettype', wanted.result::bigint
)) copy
where template.oid = 'public.hostile_function()'::regprocedure;

insert into pg_operator (
  oid, oprname, oprnamespace, oprowner, oprkind, oprcanmerge, oprcanhash, oprleft, oprright, oprresult,
  oprcom, oprnegate, oprcode, oprrest, oprjoin
)
select
  ((select greatest(max(oid::bigint), 16384) from pg_operator) + row_number() over ())::oid,
  operators.name, template.oprnamespace, template.oprowner, case one.id when 0 then 'l' else 'b' end,
  false, false, one.id, two.id,
  case when operators.name in (COMPARISONS) then 'boolean'::regtype
    else coalesce(nullif(one.id, 0), two.id) end,
  0, 0, 'public.hostile_function()'::regprocedure, 0, 0
from pg_operator template, operators,
  (select id, kind from types union all select 0, 'none') one
  join types two on one.kind = 'none' or (one.kind = 'any') = (two.kind = 'any')
where template.oid = 'public.<>(integer[], integer[])'::regoperator
  and not (operators.name = template.oprname and one.id = template.oprleft and two.id = template.oprright);
"""


_KINDS = {
    "proc": ("pro", "procedure", re.compile(r":(?:funcid|opfuncid|aggfnoid|winfnoid) (\d+)")),
    "operator": ("opr", "operator", re.compile(r":opno (\d+)")),
    "type": ("typ", "type", re.compile(r":(?:result|const|var|funcresult|opresult)type (\d+)")),
    "class": ("rel", "class", re.compile(r":relid (\d+)")),
}
"""Catalogs: the prefix of their columns, the type that shows names, and how parse trees refer to them."""


class ParseTrees:
    """What the server makes of the statements of one connection: which hostile objects they call."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._named: set[tuple[str, str]] = set()
        connection.add_log_listener(self._hear)

    async def watch(self) -> None:
        """From now on."""
        await self._connection.execute(PRINT_TREES)

    async def called(self) -> list[str]:
        """What was called since the last time that somebody asked."""
        await asyncio.sleep(0)  # the driver hands messages on in the next turn of the event loop
        named, self._named = self._named, set()
        called = []
        for kind, (column, shown, _) in _KINDS.items():
            numbers = [int(number) for found, number in named if found == kind]
            if numbers:
                called += await self._connection.fetch(
                    f"select oid::pg_catalog.reg{shown}::text from pg_catalog.pg_{kind} "
                    f"where {column}namespace operator(pg_catalog.=) 'public'::pg_catalog.regnamespace "
                    f"and oid operator(pg_catalog.=) any (array{numbers}::oid[])"
                )
        self._named.clear()
        return sorted(row[0] for row in called)

    def _hear(self, _connection: Any, message: Any) -> None:
        for kind, (_, _, pattern) in _KINDS.items():
            self._named |= {(kind, number) for number in pattern.findall(message.detail or "")}
