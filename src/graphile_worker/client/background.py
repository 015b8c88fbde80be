"""Background: the thread behind a blocking client, with an event loop and a `WorkerUtils` on it.

The first call starts the thread. A forked child has no thread, so its first call starts another, with
connections of its own. At the exit of the program the connections are closed, within a time limit.

A `SyncConnection` is a connection of such a client: its statements run on the client's thread.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
import warnings
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from ..config.calls import AwaitableContext
from ..database.connections.connection import Connection, Row
from ..errors import ConnectionFailedError, GraphileWorkerError

if TYPE_CHECKING:
    from .worker_utils import WorkerUtils

T = TypeVar("T")
Call = Callable[["WorkerUtils"], Awaitable[T]]

CLOSE_WITHIN = 3.0  # seconds; then connections are dropped
RELEASED = "this client has been released; open a new one"
IN_A_LOOP = (
    "SyncWorkerUtils blocks the event loop that runs in this thread; await the methods of WorkerUtils there"
)
ON_ITS_THREAD = (
    "this blocking client was called on its own thread, for example by one of its hooks, and would wait for "
    "itself; use another client there"
)


class Background:
    """Runs calls of any number of threads on the client, which is opened by the first of them."""

    def __init__(self, make: Callable[[], AwaitableContext[WorkerUtils]], call_timeout: float | None) -> None:
        self._make = make
        self._call_timeout = call_timeout
        self._lock = threading.Lock()  # a call that was accepted is run, also while another thread releases
        self._serving: _Serving | None = None
        self._is_closed = False
        self._has_warned = False
        _backgrounds.add(self)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def run(self, call: Call[T], *, is_long: bool = False) -> T:
        """The result of a call; it is cancelled if this thread is interrupted or has waited too long."""
        if asyncio._get_running_loop() is not None:
            self._check_loop()
        with self._lock:
            if self._is_closed:
                raise GraphileWorkerError(RELEASED)
            if self._serving is None:
                self._serving = _Serving(self._make)
            serving = self._serving
            future = asyncio.run_coroutine_threadsafe(serving.run(call), serving.loop)
        try:
            return future.result(None if is_long else self._call_timeout)
        except CancelledError:
            raise GraphileWorkerError("this client was released before the call finished") from None
        except TimeoutError:
            if future.done():  # the error of the call itself
                raise
            future.cancel()
            raise ConnectionFailedError(
                f"the database server did not answer within {self._call_timeout:g} seconds (call_timeout); "
                "what was sent may or may not have happened, so check before doing it again, or give jobs a "
                "job_key, with which adding twice does no harm"
            ) from None
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the thread and wait for it; calls in progress may end, for a moment."""
        serving = self._detach()
        if serving is not None and not serving.is_this_thread:
            serving.thread.join(2 * CLOSE_WITHIN)

    def close_soon(self) -> None:
        """End the thread without waiting: for clients that were garbage-collected."""
        self._detach()

    def _detach(self) -> _Serving | None:
        with self._lock:
            self._is_closed = True
            serving, self._serving = self._serving, None
            if serving is not None:
                serving.stop()
        return serving

    def forget(self) -> None:
        """In a forked child: leave thread and connections to the parent, which still uses them."""
        self._lock = threading.Lock()  # another thread may have held it
        serving, self._serving = self._serving, None
        if serving is not None:
            _make_immortal(serving)

    def _check_loop(self) -> None:
        serving = self._serving
        if serving is not None and serving.is_this_thread:
            raise GraphileWorkerError(ON_ITS_THREAD)
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(IN_A_LOOP, RuntimeWarning, stacklevel=_distance_to_the_caller())


class _Serving:
    """The thread, its loop and its client."""

    def __init__(self, make: Callable[[], AwaitableContext[WorkerUtils]]) -> None:
        self._make = make
        self._client: WorkerUtils | None = None
        self._opening = asyncio.Lock()
        self._stopped = asyncio.Event()
        self.loop = asyncio.SelectorEventLoop()
        self.thread = threading.Thread(target=self._serve, name="graphile-worker client", daemon=True)
        self.thread.start()

    @property
    def is_this_thread(self) -> bool:
        return self.thread is threading.current_thread()

    async def run(self, call: Call[T]) -> T:
        return await call(self._client or await self._open())

    def stop(self) -> None:
        """Stop after the calls that were submitted before."""
        self.loop.call_soon_threadsafe(self._stopped.set)

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._until_stopped())

    async def _open(self) -> WorkerUtils:
        async with self._opening:
            if self._client is None:
                self._client = await self._make()
        return self._client

    async def _until_stopped(self) -> None:
        await self._stopped.wait()
        client = self._client
        if client is None:
            return
        try:
            async with asyncio.timeout(CLOSE_WITHIN):
                await client.release()
        except TimeoutError:
            client.pool.terminate()


_backgrounds: WeakSet[Background] = WeakSet()


def _make_immortal(thing: Any) -> None:
    """Never finalize it: its sockets, and on Linux the set of those it watches, are shared with the parent.

    To finalize the event loop's transports in the child would stop the parent from hearing its connections.
    """
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _distance_to_the_caller() -> int:
    """How many calls above `warn` the code outside of this package is."""
    distance, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("graphile_worker."):
        distance, frame = distance + 1, frame.f_back
    return distance


def _close_all() -> None:
    for background in list(_backgrounds):
        background.close()


def _forget_all() -> None:
    for background in list(_backgrounds):
        background.forget()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


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
