"""The part of `SyncWorkerUtils` that is written by hand: how it begins and ends, and what is not one call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ..database.connections.bound import no_connection_to_lend
from ..database.connections.connection import BlockingConnection
from ..hooks import Hooks
from ..values.job import Job
from ..values.options import WorkerOptions
from ..values.schema_name import SchemaName
from ..values.spec import JobSpec
from .background import Background
from .sync_calls import SyncCalls, read_here

if TYPE_CHECKING:
    from .background import SyncConnection


class SyncClient:
    """How a blocking client begins and ends."""

    def __init__(
        self, options: WorkerOptions, hooks: Hooks, *, home: Background | BlockingConnection
    ) -> None:
        """`home`: where calls without a connection run."""
        self.schema: SchemaName = options.schema_name
        """The schema of the jobs."""
        self.hooks: Hooks = hooks
        """Events and interceptors of this client."""
        self._calls = SyncCalls(options, hooks, home=home)

    @classmethod
    def bound(
        cls,
        connection: BlockingConnection,
        *,
        schema: str | None = None,
        hooks: Hooks | None = None,
        use_local_time: bool | None = None,
        options: WorkerOptions | None = None,
    ) -> Self:
        """A client for this connection or session alone: all its methods work in your transaction.

        It starts no thread, opens nothing and needs no closing, so it can be made for each request. Options
        that are not given come from `options` if there is such an object, else from the environment and the
        configuration file.
        """
        from .connections import bound_options

        chosen = bound_options(schema, use_local_time, options)
        return cls(chosen, hooks if hooks is not None else Hooks(), home=connection)

    # -- opening and closing -------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self.is_released:
            self.release()

    @property
    def is_released(self) -> bool:
        """Whether `release` was called."""
        return self._calls.background is not None and self._calls.background.is_closed

    def release(self) -> None:
        """Close the client's connections and end its thread. A bound client has nothing to close."""
        if self._calls.background is not None:
            self._calls.background.close()

    # -- methods with something of their own ---------------------------------------------------------------

    def add_jobs(
        self,
        specs: Iterable[JobSpec],
        *,
        return_jobs: bool = True,
        connection: BlockingConnection | None = None,
    ) -> list[Job]:
        """Add many jobs in one transaction; returns them in the order of the specs.

        With `return_jobs=False` the result is empty. A generator is read in your thread. With your own
        connection it is read while jobs are added, so that millions of specs need no more memory than a few
        thousand of them; otherwise it is read before the first job is added.
        """
        if self._calls.runs_in_background(connection):
            specs = read_here(specs)
        return self._calls.run(
            connection, lambda utils: utils.add_jobs(specs, return_jobs=return_jobs), is_long=True
        )

    @contextmanager
    def with_pg_client(self) -> Iterator[SyncConnection]:
        """A connection of the client's own: `with utils.with_pg_client() as connection`."""
        from .background import lend

        if self._calls.background is None:
            raise no_connection_to_lend()
        with lend(self._calls.background) as connection:
            yield connection
