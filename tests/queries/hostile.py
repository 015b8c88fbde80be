"""Functions and operators that another role puts into `public`, to be called in place of PostgreSQL's own.

PostgreSQL looks in `pg_catalog` first, but a candidate whose argument types are exactly those of the call
beats any that needs a conversion, in whatever schema it is: `exp(integer)` in `public` is called where only
`exp(double precision)` is built in. So every name and operator that our SQL mentions gets overloads for all
combinations of the types that our SQL uses. Each of them counts its calls in a sequence, which no rollback
undoes.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from graphile_worker.schema_name import SchemaName
from graphile_worker.sql import FOLDER, load

ROLE = "gw_test_stranger"
TYPES = (
    "smallint", "integer", "bigint", "real", "double precision", "numeric", "text", "name", "boolean", "json",
    "jsonb", "timestamptz", "interval", "oid", "regclass", "xid", "tid", "smallint[]", "integer[]",
    "bigint[]", "double precision[]", "text[]", "name[]", "boolean[]", "xid[]", "tid[]",
    "graphile_worker.job_spec[]",
)  # fmt: skip
COMPARISONS = frozenset({"=", "<>", "<", ">", "<=", ">=", "?|"})
MOST_ARGUMENTS = 2  # calls with more are qualified: there is no end to the combinations

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


VARIANTS = ("wide", "registered", "unasked", "unkept", "upwards", "scheduled")
NOT_STATEMENTS = ("parts", "testing")


def paths() -> list[str]:
    """All files with SQL that runs in databases of users."""
    files = sorted(
        str(file.relative_to(FOLDER).with_suffix(""))
        for file in FOLDER.rglob("*.sql")
        if file.relative_to(FOLDER).parts[0] not in NOT_STATEMENTS
    )
    schema = SchemaName()
    variants = (f"{path}@{variant}" for path in files for variant in VARIANTS)
    return [
        *files,
        *(each for each in variants if load(each, schema) != load(each.partition("@")[0], schema)),
    ]


def text_of(path: str) -> str:
    """The SQL of a file without comments and literals."""
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
    """Create them all, as a role that may do no more than to create objects in `public`."""
    texts = [text_of(path) for path in paths()]
    wanted = sorted({(call.name, call.arguments) for text in texts for call in calls_in(text)})
    operators = sorted({operator for text in texts for operator in operators_in(text)})
    if not await connection.fetchval("select exists (select from pg_roles where rolname = $1)", ROLE):
        await connection.execute(f"create role {ROLE}")
    await connection.execute(f"grant usage on schema graphile_worker to {ROLE}")
    await connection.execute(f"grant usage, create on schema public to {ROLE}")
    await connection.execute("create sequence public.hostile_calls")
    await connection.execute("grant all on sequence public.hostile_calls to public")
    await connection.execute("create table public.wanted (name text, arguments integer)")
    await connection.executemany("insert into public.wanted values ($1, $2)", wanted)
    types = ", ".join(f"'{name}'" for name in TYPES)
    names = ", ".join(f"'{name}'" for name in operators)
    comparisons = ", ".join(f"'{name}'" for name in COMPARISONS)
    await connection.execute(f"grant select on public.wanted to {ROLE}")
    async with connection.transaction():
        await connection.execute(f"set local role {ROLE}")
        await connection.execute("set local check_function_bodies = off")
        await connection.execute(
            _INVASION.replace("TYPES", types).replace("OPERATORS", names).replace("COMPARISONS", comparisons)
        )
    await connection.execute("drop table public.wanted")


_INVASION = """
do $do$
declare
  types constant text[] := array[TYPES];
  body constant text := $body$ language plpgsql as '
    begin perform pg_catalog.nextval(''public.hostile_calls''::regclass); return null; end' $body$;
  head constant text := 'create function public.%I(%s) returns %s';
  called record;
  one text;
  two text;
  operator text;
begin
  for called in
    -- What a built-in one returns; where that depends on its arguments, the type of the first of them.
    select distinct on (wanted.name, wanted.arguments)
      wanted.*, case when proc.prorettype in (select oid from pg_type where typtype = 'p') then null
        else format_type(proc.prorettype, null) end as result
    from public.wanted join pg_proc proc on proc.proname = wanted.name
      and proc.pronamespace = 'pg_catalog'::regnamespace
    order by wanted.name, wanted.arguments, proc.pronargs = wanted.arguments desc
  loop
    if called.arguments = 0 then
      execute format(head, called.name, '', coalesce(called.result, 'text')) || body;
    elsif called.arguments = 1 then
      foreach one in array types loop
        execute format(head, called.name, one, coalesce(called.result, one)) || body;
      end loop;
    elsif called.arguments = 2 then
      foreach one in array types loop
        foreach two in array types loop
          execute format(head, called.name, one || ', ' || two, coalesce(called.result, one)) || body;
        end loop;
      end loop;
    end if;
  end loop;
  foreach one in array types loop
    foreach two in array types loop
      execute format('create function public.hostile_comparison(%s, %s) returns boolean', one, two) || body;
      execute format('create function public.hostile_operator(%s, %s) returns %s', one, two, one) || body;
      foreach operator in array array[OPERATORS] loop
        execute format(
          'create operator public.%s (leftarg = %s, rightarg = %s, function = public.%s)', operator, one, two,
          case when operator in (COMPARISONS) then 'hostile_comparison' else 'hostile_operator' end
        );
      end loop;
    end loop;
  end loop;
end
$do$
"""


async def hostile_objects(connection: Any) -> dict[int, str]:
    """The functions and operators in `public`, by their object id."""
    public = "operator(pg_catalog.=) 'public'::pg_catalog.regnamespace::pg_catalog.oid"
    rows = await connection.fetch(
        "select oid::bigint as id, oid::pg_catalog.regprocedure::text as name from pg_catalog.pg_proc "
        f"where pronamespace {public} union all "
        "select oid::bigint, oid::pg_catalog.regoperator::text from pg_catalog.pg_operator "
        f"where oprnamespace {public}"
    )
    return {row["id"]: row["name"].removeprefix("public.") for row in rows}


_NAMED = re.compile(r":(?:funcid|opfuncid|opno|aggfnoid|winfnoid)\s+(\d+)")


class ParseTrees:
    """What the server makes of the statements of one connection: which functions and operators they call."""

    def __init__(self, connection: Any, hostile: dict[int, str]) -> None:
        self._hostile = hostile
        self._called: set[str] = set()
        connection.add_log_listener(self._hear)

    async def watch(self, connection: Any) -> None:
        """From now on."""
        await connection.execute(
            "set client_min_messages = log; set debug_pretty_print = off; set debug_print_parse = on"
        )

    async def called(self) -> list[str]:
        """What was called since the last time that somebody asked."""
        await asyncio.sleep(0)  # the driver hands messages on in the next turn of the event loop
        called, self._called = self._called, set()
        return sorted(called)

    def _hear(self, _connection: Any, message: Any) -> None:
        for number in _NAMED.findall(message.detail or ""):
            name = self._hostile.get(int(number))
            if name is not None:
                self._called.add(name)
