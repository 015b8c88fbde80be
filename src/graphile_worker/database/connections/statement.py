"""Statements as values: SQL text and arguments that any PostgreSQL driver can send, and the jobs they return.

The contract for adapters, such as those in `database/connections/foreign`:

- Parameters are `$1`, `$2`, …. A number may occur several times; every occurrence has a cast, so a driver may
  send arguments without a type. Outside quotes, `$` is followed by digits only in parameters.
- Arguments are plain values: None, bool, int, float, str, aware datetime, and lists of str, int or None.
- Comments are removed. A driver that substitutes values into the text would otherwise write them into
  comments, where a line break in a value ends the comment and the rest runs as SQL.
- Rows are read by position, so cursors must return tuples. Those of jobs have the columns in the order of
  Job's fields.
- `Statement.pyformat()` translates for drivers with `%(name)s` parameters.

`with_planner_settings` sets the planner for one transaction, so that large tables are read by their indexes;
`bounded_transaction` bounds the time of its statements.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, NamedTuple, TypeVar, overload

from ...values.job import Job
from ...values.schema_name import SchemaName
from ..sql import load
from . import sqlstates
from .bound import is_gone
from .connection import Connection, Row
from .encoding import named, pyformat, without_comments
from .errors import sqlstate_of

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


_TASK_ID = Job.__struct_fields__.index("task_id")


def jobs_from_rows(rows: Iterable[Row]) -> list[Job]:
    """Jobs from rows with all columns, the task identifier last."""
    return [Job(*row) for row in rows]


def taken_jobs(rows: Iterable[Row | tuple[Any, ...]], pool_id: str, names: Mapping[int, str]) -> list[Job]:
    """Jobs that this pool has locked, from rows without the pool's id and the task identifiers."""
    return [Job(*row, pool_id, names[row[_TASK_ID]]) for row in rows]  # type: ignore[call-arg]


class FetchedJobs(Sequence[Job]):
    """Many jobs, created when one of them is first used, so that the next fetch can be sent before."""

    __slots__ = ("_count", "_jobs", "_make")

    def __init__(self, count: int, make: Callable[[], list[Job]]) -> None:
        self._count = count
        self._make: Callable[[], list[Job]] | None = make
        self._jobs: list[Job] = []

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Job: ...
    @overload
    def __getitem__(self, index: slice) -> list[Job]: ...
    def __getitem__(self, index: int | slice) -> Job | list[Job]:
        return self._made[index]

    def __iter__(self) -> Iterator[Job]:
        return iter(self._made)

    @property
    def _made(self) -> list[Job]:
        if self._make is not None:
            self._jobs = self._make()
            self._make = None
        return self._jobs


@asynccontextmanager
async def with_planner_settings(connection: Connection, settings: str) -> AsyncIterator[None]:
    """A transaction with these settings of the planner; one of the caller is left as it is."""
    if connection.is_in_transaction():
        yield
        return
    async with connection.transaction():
        await connection.fetchrow(settings)
        yield


@asynccontextmanager
async def bounded_transaction(
    connection: Connection, schema: SchemaName, time: str, lock_time: str, *, readonly: bool = False
) -> AsyncIterator[None]:
    """A transaction whose statements may take `time`, and wait `lock_time` for a lock, both in milliseconds.

    The bound holds for its ROLLBACK, too. On a busy machine the server may refuse that, and the next
    statement would find a transaction that has failed.
    """
    is_inside = connection.is_in_transaction()
    try:
        async with connection.transaction(readonly=readonly):
            await connection.fetchrow(load("session/bounds", schema), time, lock_time)
            yield
    except Exception:
        while not is_inside and not is_gone(connection) and connection.is_in_transaction():
            try:
                await connection.execute("rollback")
            except Exception as error:
                if sqlstate_of(error) != sqlstates.QUERY_CANCELED:
                    raise
        raise
