"""A connection of a blocking client: its statements run on the client's thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from ..db.connection import Connection, Row
from .background import Background

if TYPE_CHECKING:
    from .worker_utils import WorkerUtils

T = TypeVar("T")


class SyncConnection:
    """A connection from `with_pg_client`; statements take `$1` parameters."""

    def __init__(self, background: Background, connection: Connection) -> None:
        self._background = background
        self._connection = connection

    def fetch(self, query: str, *args: Any, timeout: float | None = None) -> Sequence[Row]:
        """The rows of a statement."""
        return self._run(lambda it: it.fetch(query, *args, timeout=timeout))

    def fetchrow(self, query: str, *args: Any, timeout: float | None = None) -> Row | None:
        """The first row of a statement."""
        return self._run(lambda it: it.fetchrow(query, *args, timeout=timeout))

    def fetchval(self, query: str, *args: Any, column: int = 0, timeout: float | None = None) -> Any:
        """A column of the first row."""
        return self._run(lambda it: it.fetchval(query, *args, column=column, timeout=timeout))

    def execute(self, query: str, *args: Any, timeout: float | None = None) -> str:
        """Run a statement, or without arguments several; returns the status of the last."""
        return self._run(lambda it: it.execute(query, *args, timeout=timeout))

    def executemany(
        self, command: str, args: Iterable[Sequence[Any]], *, timeout: float | None = None
    ) -> None:
        """Run a statement for each sequence of arguments."""
        rows = list(args)  # read in this thread
        self._run(lambda it: it.executemany(command, rows, timeout=timeout))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction, or a savepoint inside one: `with connection.transaction()`."""
        transaction = self._connection.transaction()
        self._run(lambda _: transaction.start())
        try:
            yield
        except BaseException:
            self._run(lambda _: transaction.rollback())
            raise
        self._run(lambda _: transaction.commit())

    def is_in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._connection.is_in_transaction()

    def _run(self, statement: Callable[[Connection], Awaitable[T]]) -> T:
        return self._background.run(lambda _: statement(self._connection), is_long=True)


@contextmanager
def lend(background: Background) -> Iterator[SyncConnection]:
    """A connection for user code; its session is reset at the end."""

    async def borrow(client: WorkerUtils) -> tuple[AbstractAsyncContextManager[Connection], Connection]:
        manager = client.with_pg_client()
        return manager, await manager.__aenter__()

    manager, connection = background.run(borrow)
    try:
        yield SyncConnection(background, connection)
    finally:
        background.run(lambda _: manager.__aexit__(None, None, None))
