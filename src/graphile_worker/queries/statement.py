"""Statements as values: SQL text and arguments that any PostgreSQL driver can send.

The contract for adapters, such as those in `db/foreign`:

- Parameters are `$1`, `$2`, …. A number may occur several times; every occurrence has a cast, so a driver may
  send arguments without a type. Outside quotes, `$` is followed by digits only in parameters.
- Arguments are plain values: None, bool, int, float, str, aware datetime, and lists of str, int or None.
- Comments are removed. A driver that substitutes values into the text would otherwise write them into
  comments, where a line break in a value ends the comment and the rest runs as SQL.
- Rows are read by position, so cursors must return tuples.
- `Statement.pyformat()` translates for drivers with `%(name)s` parameters.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeVar

from ..db.connection import Connection, Row
from ..db.sql_text import named, pyformat, without_comments
from ..schema_name import SchemaName
from ..sql import load

T = TypeVar("T")


class Statement(NamedTuple):
    """One statement: its text and its arguments."""

    sql: str
    arguments: tuple[Any, ...]

    def pyformat(self) -> tuple[str, dict[str, Any]]:
        """The same for drivers that write parameters as `%(name)s`, such as psycopg and psycopg2."""
        return pyformat(self.sql), named(self.arguments)


Steps = Generator[Statement, Sequence[Row], T]
"""Statements to run in turn: send the rows of each to get the next; the result is the generator's value."""


async def run_steps(connection: Connection, steps: Steps[T]) -> T:
    """Run all statements on one connection."""
    rows: Any = None
    while True:
        try:
            sql, arguments = steps.send(rows)
        except StopIteration as end:
            result: T = end.value
            return result
        rows = await connection.fetch(sql, *arguments)


@cache
def load_statement(path: str, schema: SchemaName) -> str:
    """The text of a statement without its comments."""
    return without_comments(load(path, schema))
