"""SyncCalls: where the calls of a blocking client run.

Calls with a connection of the caller, and those of a bound client, run in the caller's thread, without an
event loop. All others run on the client's own thread.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast
from weakref import finalize

from ..database.connections.bound import BlockingClock, BoundConnection, run_blocking
from ..database.connections.connection import BlockingConnection
from ..database.connections.foreign import as_blocking_connection
from ..errors import ConfigError, InvalidArgumentError
from ..hooks import Hooks
from ..values.options import WorkerOptions
from ..values.schema_name import SchemaName
from .background import Background
from .connections import ClientConnections
from .worker_utils import WorkerUtils

if TYPE_CHECKING:
    from ..database.statements.bulk_changes import BulkOptions

T = TypeVar("T")


class SyncCalls:
    """Runs the calls of a blocking client and of its members. Its thread ends with the last of them."""

    def __init__(
        self, options: WorkerOptions, hooks: Hooks, *, home: Background | BlockingConnection
    ) -> None:
        """`home`: where calls without a connection run."""
        refuse_coroutines(hooks)
        self.schema: SchemaName = options.schema_name
        self.hooks = hooks
        self._options = options
        self.background = home if isinstance(home, Background) else None
        self.bound = None if isinstance(home, Background) else self._on(home)
        if self.background is not None:
            finalize(self, self.background.close_soon).atexit = False

    def run(
        self,
        connection: BlockingConnection | None,
        call: Callable[[WorkerUtils], Coroutine[Any, Any, T]],
        *,
        is_long: bool = False,
    ) -> T:
        """The result of a call. A long one has no time limit."""
        if self.background is not None and connection is None:
            return self.background.run(call, is_long=is_long)
        return run_blocking(call(self._client(connection)))

    def run_any(
        self,
        connection: BlockingConnection | None,
        call: Callable[[Any], Any],
        *,
        is_long: bool = False,
    ) -> Any:
        """The same for methods whose overloads say more than their parameters."""
        return self.run(connection, call, is_long=is_long)

    def runs_in_background(self, connection: BlockingConnection | None) -> bool:
        """Whether a call runs on the client's own thread."""
        return self.background is not None and connection is None

    def bulk_options(self, connection: BlockingConnection | None, options: BulkOptions) -> BulkOptions:
        """The options of a change in steps; `on_step` may use this client."""
        if isinstance(options.get("stop"), asyncio.Event):
            raise InvalidArgumentError(
                "stop", "is an asyncio.Event, which belongs to an event loop; give a threading.Event"
            )
        on_step = options.get("on_step")
        if inspect.iscoroutinefunction(on_step):
            raise InvalidArgumentError("on_step", "is a coroutine function; give a plain function")
        if on_step is None or not self.runs_in_background(connection):
            return options
        return {**options, "on_step": lambda *report: asyncio.to_thread(on_step, *report)}

    def _client(self, connection: BlockingConnection | None) -> WorkerUtils:
        """The client for calls in this thread."""
        if connection is not None:
            return self._on(connection)
        assert self.bound is not None  # noqa: S101
        return self.bound

    def _on(self, connection: BlockingConnection) -> WorkerUtils:
        return WorkerUtils(
            ClientConnections(
                BoundConnection(as_blocking_connection(connection)),
                schema=self.schema,
                use_local_time=self._options.use_local_time,
                hooks=self.hooks,
                clock=BlockingClock(),
                history_retention=self._options.history.retention,
            )
        )


def read_here(values: T) -> T:
    """The values; those of a generator as a list, so that it runs in the caller's thread."""
    return cast(T, list(values)) if isinstance(values, Iterator) else values


def refuse_coroutines(hooks: Hooks) -> None:
    """Calls on the caller's connection have no event loop, so interceptors must be plain functions."""
    for interceptor in hooks.table.before_add:
        if inspect.iscoroutinefunction(interceptor):
            raise ConfigError(
                f"before_add: {interceptor.__qualname__} is a coroutine function; a blocking client takes "
                "plain functions"
            )
