"""Whether somebody else's function or operator could be called in place of PostgreSQL's own.

PostgreSQL prefers a candidate whose argument types are exactly those of the call, in whatever schema of the
search path it is. So a name that is not qualified is safe only if `pg_catalog`, which is searched first, has
an exact match. This module reads the parse trees that the server writes with `debug_print_parse`, and finds
calls without one. Nothing has to be guessed: neither names nor types that an attacker may think of.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

IMPLICIT = "2"  # CoercionForm: a conversion that nobody wrote
CALL = "0"  # ... and a call that somebody wrote; all others are no look-ups by name
EXTERNAL_PARAMETER = "0"  # ParamKind
BOOLEAN, TEXT = 16, 25
GONE: tuple[str, str, tuple[int, ...]] = ("public", "something", ())
NOT_PUBLIC = "operator(pg_catalog.<>) 'public'::pg_catalog.regnamespace"
"""Tests put a hundred thousand objects there: too many to read, and wrong whichever is called."""
PRINT_TREES = "set client_min_messages = log; set debug_pretty_print = off; set debug_print_parse = on"
OF_SUBQUERY = {"4": "scalar", "6": "array"}  # SubLinkType; the others are boolean

_TOKEN = re.compile(r"[(){}]|(?:\\.|[^\s(){}\\])+", re.DOTALL)
_TYPE_FIELDS = (
    "vartype", "consttype", "paramtype", "aggtype", "wintype", "funcresulttype", "opresulttype", "resulttype",
    "casetype", "typeId", "array_typeid", "row_typeid", "coalescetype", "minmaxtype", "refrestype", "type",
    "refelemtype",
)  # fmt: skip
_COERCIONS = {
    "FUNCEXPR": "funcformat",
    "RELABELTYPE": "relabelformat",
    "COERCEVIAIO": "coerceformat",
    "ARRAYCOERCEEXPR": "coerceformat",
    "CONVERTROWTYPEEXPR": "convertformat",
    "COERCETODOMAIN": "coercionformat",
}
_OPERATORS = ("OPEXPR", "DISTINCTEXPR", "NULLIFEXPR", "SCALARARRAYOPEXPR")
_LITERAL = re.compile(
    r"([eE]?'(?:[^']|'')*'|\$\d+|\$(\w*)\$.*?\$\2\$|null\b)(?:(\)*)\s*(::))?", re.DOTALL | re.IGNORECASE
)
_TYPED = re.compile(
    r"\b(?:interval|timestamptz|timestamp|date|text|jsonb|json|time zone|precision)\s*\Z", re.I
)
_QUALIFIED_FUNCTION = re.compile(r'(?:"(?:[^"]|"")*"|\w+)\s*\.')
_QUALIFIED_OPERATOR = re.compile(r"operator\s*\(\s*pg_catalog\s*\.", re.IGNORECASE)


@dataclass
class Node:
    """A node of a parse tree: what is between two braces."""

    kind: str
    fields: dict[str, list[Any]] = field(default_factory=dict)

    def text(self, name: str) -> str:
        values = self.fields.get(name) or [""]
        return values[0] if isinstance(values[0], str) else ""

    def list(self, name: str) -> list[Any]:
        values = self.fields.get(name) or [""]
        return values[0] if isinstance(values[0], list) else []

    def walk(self) -> Iterator[Node]:
        """This node and all below it."""
        yield self
        for values in self.fields.values():
            yield from _nodes(values)


def _nodes(values: list[Any]) -> Iterator[Node]:
    for value in values:
        if isinstance(value, Node):
            yield from value.walk()
        elif isinstance(value, list):
            yield from _nodes(value)


def parse(tree: str) -> list[Any]:
    """The nodes of a tree as the server prints it."""
    stack: list[Any] = [[]]
    name = ""
    tokens = iter(_TOKEN.findall(tree))
    names: list[str] = []
    for token in tokens:
        if token == "{":
            stack.append(Node(next(tokens)))
            names.append(name)
        elif token == "(":
            stack.append([])
            names.append(name)
        elif token in ")}":
            done = stack.pop()
            name = names.pop()
            _add(stack[-1], name, done)
        elif isinstance(stack[-1], Node) and token.startswith(":"):
            name = token[1:]
            stack[-1].fields[name] = []
        else:
            _add(stack[-1], name, token)
    found: list[Any] = stack[0]
    return found


def _add(parent: Any, name: str, value: Any) -> None:
    (parent if isinstance(parent, list) else parent.fields.setdefault(name, [])).append(value)


@dataclass(frozen=True)
class Catalog:
    """What the trees name by number."""

    functions: dict[int, tuple[str, str, tuple[int, ...]]]
    operators: dict[int, tuple[str, str, tuple[int, ...]]]
    """By object id: schema, name, types of the arguments."""
    types: dict[int, tuple[str, int]]
    """Name and type of the elements."""

    @classmethod
    async def read(cls, connection: Any) -> Catalog:
        functions = await connection.fetch(
            "select oid::pg_catalog.int8 as id, pronamespace::pg_catalog.regnamespace::text as schema, "
            "proname::text as name, proargtypes::oid[]::bigint[] as types from pg_catalog.pg_proc "
            f"where pronamespace {NOT_PUBLIC}"
        )
        operators = await connection.fetch(
            "select oid::pg_catalog.int8 as id, oprnamespace::pg_catalog.regnamespace::text as schema, "
            "oprname::text as name, array[oprleft, oprright]::bigint[] as types from pg_catalog.pg_operator "
            f"where oprnamespace {NOT_PUBLIC}"
        )
        types = await connection.fetch(
            "select oid::pg_catalog.int8 as id, oid::pg_catalog.regtype::text as name, "
            "typelem::pg_catalog.int8 as element from pg_catalog.pg_type"
        )
        return cls(
            {row["id"]: (row["schema"], row["name"], tuple(row["types"])) for row in functions},
            {
                row["id"]: (row["schema"], row["name"], tuple(each for each in row["types"] if each))
                for row in operators
            },
            {row["id"]: (row["name"], row["element"]) for row in types},
        )

    def function(self, number: str) -> tuple[str, str, tuple[int, ...]]:
        return self.functions.get(int(number), GONE)

    def operator(self, number: str) -> tuple[str, str, tuple[int, ...]]:
        return self.operators.get(int(number), GONE)

    def element(self, type_id: int) -> int:
        return self.types.get(type_id, ("", 0))[1]

    def name(self, type_id: int | None) -> str:
        return "unknown" if type_id is None else self.types.get(type_id, (str(type_id), 0))[0]


class Analysis:
    """The calls of one tree, with the text that it was made of, that others could take over."""

    def __init__(
        self, catalog: Catalog, tree: str, source: str, *, is_statement: bool, are_literals: bool = False
    ) -> None:
        self._catalog = catalog
        self._source = source.encode()
        self._is_statement = is_statement  # and so a parameter without a cast has no type yet
        self._are_literals = are_literals  # parameters are sent as literals, each without a type
        self._nodes = list(_nodes(parse(tree)))
        self._unnests = Counter(
            node.text("location") for node in self._nodes
            if node.kind == "FUNCEXPR" and catalog.function(node.text("funcid"))[1] == "unnest"
        )  # fmt: skip

    def inexact(self) -> Iterator[str]:
        for node in self._nodes:
            if node.kind in _OPERATORS:
                yield from self._operator(node, node.text("opno"), node.list("args"))
            elif node.kind in ("ROWCOMPAREEXPR", "ROWCOMPARE"):  # the latter in older versions
                numbers = [number for number in node.list("opnos") if number != "o"]
                for number, *pair in zip(numbers, node.list("largs"), node.list("rargs"), strict=True):
                    yield from self._operator(node, number, pair)
            elif node.kind == "FUNCEXPR" and node.text("funcformat") == CALL:
                yield from self._function(node, node.text("funcid"), node.list("args"))
            elif node.kind == "AGGREF":
                args = [entry.fields["expr"][0] for entry in node.list("args")]
                yield from self._function(node, node.text("aggfnoid"), [*node.list("aggdirectargs"), *args])
            elif node.kind == "WINDOWFUNC":
                yield from self._function(node, node.text("winfnoid"), node.list("args"))

    def _operator(self, node: Node, number: str, args: list[Node]) -> Iterator[str]:
        schema, name, declared = self._catalog.operator(number)
        if _QUALIFIED_OPERATOR.match(self._at(node)):
            return
        actual = [self._type(arg) for arg in args]
        if node.kind == "SCALARARRAYOPEXPR" and actual[1] is not None:
            actual[1] = self._catalog.element(actual[1])
        # A literal without a type gets that of the other side.
        known = {each for each in actual if each is not None} or {TEXT}
        exact = [next(iter(known)) if each is None else each for each in actual]
        if schema != "pg_catalog" or tuple(exact) != declared:
            yield self._describe(schema, name, actual, node)

    def _function(self, node: Node, number: str, args: list[Node]) -> Iterator[str]:
        schema, name, declared = self._catalog.function(number)
        at = self._at(node)
        if self._unnests[node.text("location")] > 1 and name == "unnest":
            return  # of several arrays: made by the grammar, and always that of pg_catalog
        if _QUALIFIED_FUNCTION.match(at):
            return
        if at and not re.match(rf'"?{name}\b', at, re.IGNORECASE):
            return  # syntax such as `extract(epoch from …)`, which names pg_catalog's function
        actual = [self._type(arg) for arg in args]
        exact = [TEXT if each is None else each for each in actual]
        is_exact = tuple(exact) == declared[: len(exact)]  # the rest has defaults
        # `f('x')` is a conversion if somebody has a type with the name of the function.
        if schema != "pg_catalog" or not is_exact or actual == [None]:
            yield self._describe(schema, name, actual, node)

    def _type(self, node: Node) -> int | None:
        """The type of an argument as it was written; None for a literal or parameter without a type."""
        is_converted = False  # a literal without a type is never converted: it becomes what is needed
        while _COERCIONS.get(node.kind) and node.text(_COERCIONS[node.kind]) == IMPLICIT:
            node = (node.fields.get("arg") or node.list("args"))[0]
            is_converted = True
        if node.kind in ("NAMEDARGEXPR", "COLLATEEXPR"):
            return self._type(node.fields["arg"][0])
        if not is_converted and self._is_untyped(node):
            return None
        if node.kind == "SUBLINK":
            return self._type_of_subquery(node)
        for name in _TYPE_FIELDS:
            if name in node.fields:
                return int(node.text(name))
        return BOOLEAN

    def _type_of_subquery(self, node: Node) -> int:
        wanted = OF_SUBQUERY.get(node.text("subLinkType"))
        if wanted is None:
            return BOOLEAN
        (query,) = node.fields["subselect"]
        found = self._type(query.list("targetList")[0].fields["expr"][0])
        assert found is not None
        if wanted == "scalar":
            return found
        return next(
            oid
            for oid, (name, element) in self._catalog.types.items()
            if element == found and name.endswith("[]")
        )

    def _is_untyped(self, node: Node) -> bool:
        if node.kind != "CONST" and not (
            node.kind == "PARAM" and node.text("paramkind") == EXTERNAL_PARAMETER
        ):
            return False
        place = int(node.text("location"))
        if place < 0:
            return False
        text = self._source[place:].decode(errors="replace")
        found = _LITERAL.match(text)
        before = self._source[:place].decode(errors="replace")
        if found is None or (found[4] is not None and _is_around(before, len(found[3]))):
            return False
        if text.startswith("$") and (not self._is_statement or self._is_cast_before(found[1], place)):
            return False
        return not _TYPED.search(before)

    def _is_cast_before(self, parameter: str, place: int) -> bool:
        """Then it has that type from there on."""
        return (
            not self._are_literals
            and re.search(rf"\{parameter}\s*::".encode(), self._source[:place]) is not None
        )

    def _at(self, node: Node) -> str:
        place = int(node.text("location") or -1)
        return "" if place < 0 else self._source[place : place + 100].decode(errors="replace")

    def _describe(self, schema: str, name: str, actual: list[int | None], node: Node) -> str:
        types = ", ".join(map(self._catalog.name, actual))
        around = self._source[max(0, int(node.text("location") or 0) - 30) :][:80].decode(errors="replace")
        return f"{schema}.{name}({types}) at {' '.join(around.split())!r}"


def _is_around(before: str, parentheses: int) -> bool:
    """Whether as many parentheses stand before a literal, and are not those of a call: `f('x')::text`."""
    return re.search(rf"(?<![\w\"])\({{{parentheses}}}\Z", before) is not None if parentheses else True


_INNER = re.compile(
    r'\A(?:PL/pgSQL expression|PL/pgSQL assignment|SQL statement|SQL expression) "(.*?)"\n(?=PL/pgSQL|SQL)',
    re.DOTALL,
)
_SQL_FUNCTION = re.compile(r'\ASQL function "(\w+)"')
_FUNCTION = re.compile(r"^PL/pgSQL function (?:[^\s(]+\.)?(\w+)\(.*?\) line (\d+) at ", re.MULTILINE)


class Reader:
    """Reads the messages of one server."""

    def __init__(self, catalog: Catalog, bodies: dict[str, str], closed: frozenset[str]) -> None:
        self._catalog = catalog
        self.bodies = bodies
        self._closed = closed  # functions with a search_path of their own
        self.functions: defaultdict[str, set[int]] = defaultdict(set)
        """Functions that were seen, and the lines of their statements."""

    @classmethod
    async def of(cls, connection: Any) -> Reader:
        rows = await connection.fetch(
            "select proname::text as name, prosrc as body, "
            "exists (select from pg_catalog.unnest(proconfig) setting "
            "where setting = 'search_path=pg_catalog, pg_temp') as is_closed from pg_catalog.pg_proc "
            "where pronamespace::pg_catalog.regnamespace::text = 'graphile_worker'"
        )
        return cls(
            await Catalog.read(connection),
            {row["name"]: row["body"] for row in rows},
            frozenset(row["name"] for row in rows if row["is_closed"]),
        )

    def inexact(
        self, tree: str, context: str | None, statement: str, *, are_literals: bool = False
    ) -> list[str]:
        """What others could take over in one tree."""
        if ":utilityStmt {" in tree[:200]:
            return []
        source, is_statement = statement, True
        if inner := _INNER.match(context or ""):
            source, is_statement = inner[1], False
        elif called := _SQL_FUNCTION.match(context or ""):
            if called[1] not in self.bodies:
                return []  # one of PostgreSQL's own
            source, is_statement = self.bodies[called[1]], False
            self.functions[called[1]].add(1)
        if function := _FUNCTION.search(context or ""):
            self.functions[function[1]].add(int(function[2]))
            if function[1] in self._closed:
                return []
        analysis = Analysis(self._catalog, tree, source, is_statement=is_statement, are_literals=are_literals)
        return list(analysis.inexact())


class Watched:
    """A connection whose statements are looked at."""

    def __init__(self, connection: Any, reader: Reader) -> None:
        self.connection = connection
        self.reader = reader
        self._statement = ""
        self._are_literals = False
        self._found: list[str] = []
        self._trees = 0
        connection.add_log_listener(self._hear)

    async def run(self, statement: str, *, are_literals: bool = False) -> list[str]:
        """Run a statement; what others could take over in it, and in the functions that it calls."""
        return await self._hear_of(self.connection.execute, statement, are_literals=are_literals)

    async def prepare(self, statement: str, *, are_literals: bool = False) -> list[str]:
        """What others could take over in a statement, which is not run.

        By the protocol: before PostgreSQL 14, `prepare` prints no tree.
        """
        return await self._hear_of(self.connection.prepare, statement, are_literals=are_literals)

    async def _hear_of(
        self, send: Callable[[str], Awaitable[Any]], statement: str, *, are_literals: bool
    ) -> list[str]:
        self._statement = statement
        self._are_literals = are_literals
        self._trees = 0
        await send(statement)
        await asyncio.sleep(0)  # the driver hands messages on in the next turn of the event loop
        found, self._found = self._found, []
        assert self._trees, f"the server has printed no tree of {statement[:80]}"
        return found

    def _hear(self, _connection: Any, message: Any) -> None:
        if message.message == "parse tree:":
            self._trees += 1
            self._found += self.reader.inexact(
                message.detail, message.context, self._statement, are_literals=self._are_literals
            )
