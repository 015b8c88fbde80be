"""Starlette: a client, and if wanted a worker, that live as long as the application.

    jobs = GraphileWorkerApp(worker=True, task_list=[welcome])
    app = Starlette(routes=..., lifespan=jobs.lifespan)

Nothing here imports Starlette: every framework that has a lifespan can use it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ..client import WorkerUtils, make_worker_utils
from ..client.api import OBJECTS as CLIENT_OBJECTS
from ..client.sync_worker_utils import SyncWorkerUtils, make_sync_worker_utils
from ..config.calls import call_options, check_names
from ..database.connections.errors import explained
from ..database.connections.foreign import is_blocking
from ..errors import ConfigError
from ..hooks.faults import is_our_end
from ..runner import run
from ..runner.application import as_app
from ..runner.build import OBJECTS as WORKER_OBJECTS
from ..values.options import CLIENT_OPTIONS, WorkerOptions

if TYPE_CHECKING:
    from ..runner.runner import Runner

__all__ = ["GraphileWorkerApp"]
OnWorkerFailure = Literal["exit", "log"]
AppType = TypeVar("AppType")
STATE_KEY = "graphile_worker"
NOT_SYNC = ("pg_pool", "clock")
NOT_OPEN = (
    "no GraphileWorkerApp is open: pass its lifespan to the application; in tests, enter it with "
    "`with TestClient(app)`"
)

logger = logging.getLogger("graphile_worker.contrib")


class GraphileWorkerApp:
    """Opens a client with the application and closes it with it; `worker=True` runs a worker beside it.

    `options` are the arguments of `run`; without a worker, those that `make_worker_utils` takes are used.
    Signals are the server's: the worker stops gracefully, within `grace`, when the lifespan ends.
    """

    def __init__(
        self, *, worker: bool = False, on_worker_failure: OnWorkerFailure = "exit", **options: Any
    ) -> None:
        """`on_worker_failure`: what to do when the worker dies. `exit` sends the process SIGTERM, so that the
        server ends in order and its supervisor notices; `log` leaves it running without a worker."""
        if on_worker_failure not in ("exit", "log"):
            raise ConfigError(f"on_worker_failure: expected 'exit' or 'log', got {on_worker_failure!r}")
        check_names(options, (*WorkerOptions.__struct_fields__, *WORKER_OBJECTS))
        if options.get("handle_signals"):
            raise ConfigError("handle_signals: the server handles signals; leave this option out")
        self._has_worker = worker
        self._on_worker_failure = on_worker_failure
        self._options = options
        self._utils: WorkerUtils | None = None
        self._sync_utils: SyncWorkerUtils | None = None
        self._runner: Runner | None = None

    # -- for the application -------------------------------------------------------------------------------

    @property
    def utils(self) -> WorkerUtils:
        """The client."""
        if self._utils is None:
            raise RuntimeError(NOT_OPEN)
        return self._utils

    @property
    def sync_utils(self) -> SyncWorkerUtils:
        """A client for code in threads. It has connections of its own, opened at its first call."""
        if self._utils is None:
            raise RuntimeError(NOT_OPEN)
        if self._sync_utils is None:
            arguments = self._client_arguments()
            self._sync_utils = make_sync_worker_utils(
                **{name: value for name, value in arguments.items() if name not in NOT_SYNC}
            )
        return self._sync_utils

    def bound(self, connection: Any) -> WorkerUtils | SyncWorkerUtils:
        """A client in the transaction of a connection or session; a `SyncWorkerUtils` for a blocking one."""
        utils = self.utils
        client: type[WorkerUtils] | type[SyncWorkerUtils] = WorkerUtils
        if is_blocking(connection):
            client = SyncWorkerUtils
        return client.bound(
            connection, schema=utils.schema.name, hooks=utils.hooks, options=self._options.get("options")
        )

    @property
    def runner(self) -> Runner | None:
        """The worker; None without one."""
        return self._runner

    async def check_ready(self, *, within: float = 3.0) -> str | None:
        """For a readiness probe: None if the database answers and the worker runs, else what is wrong."""
        if self._utils is None:
            return "not started"
        if self._has_worker and (self._runner is None or self._runner.is_stopping):
            return "the worker has ended"
        try:
            async with asyncio.timeout(within), self._utils.with_pg_client() as connection:
                await connection.execute("select 1")
        except Exception as error:
            logger.warning("not ready: %s", explained(error))
            return "the database does not answer"
        return None

    @asynccontextmanager
    async def lifespan(self, app: Any = None) -> AsyncIterator[dict[str, Any]]:
        """For `Starlette(lifespan=...)` and `FastAPI(lifespan=...)`. Requests see it in `request.state`."""
        if self._utils is not None:
            raise RuntimeError("this GraphileWorkerApp is open already; make one for each application")
        async with AsyncExitStack() as stack:
            stack.callback(self._forget)
            # A pool of its own, so that the application can add jobs even if the worker dies.
            self._utils = await stack.enter_async_context(make_worker_utils(**self._client_arguments()))
            if self._has_worker:
                self._runner = await stack.enter_async_context(self._running_worker())
            stack.push_async_callback(self._close_sync_utils)
            yield {STATE_KEY: self}

    def wrap(
        self, lifespan: Callable[[AppType], AbstractAsyncContextManager[Mapping[str, Any] | None]]
    ) -> Callable[[AppType], AbstractAsyncContextManager[dict[str, Any]]]:
        """A lifespan around one of the application; what both yield becomes the state."""

        @asynccontextmanager
        async def both(app: AppType) -> AsyncIterator[dict[str, Any]]:
            async with self.lifespan(app) as own, lifespan(app) as theirs:
                yield {**own, **(theirs or {})}

        return both

    def _forget(self) -> None:
        self._utils = self._runner = None

    async def _close_sync_utils(self) -> None:
        sync_utils, self._sync_utils = self._sync_utils, None
        if sync_utils is not None:
            await asyncio.to_thread(sync_utils.release)

    # -- client and worker ---------------------------------------------------------------------------------

    def _client_arguments(self) -> dict[str, Any]:
        """The arguments for a client, over what the app sets."""
        names = (*CLIENT_OPTIONS, *CLIENT_OBJECTS)
        arguments = {name: value for name, value in self._options.items() if name in names}
        if self._options.get("app") is None:
            return arguments
        app = as_app(self._options["app"])
        arguments["options"] = call_options(
            arguments, objects=CLIENT_OBJECTS, options=CLIENT_OPTIONS, app_options=app.options
        )
        if "events" not in arguments:
            arguments.setdefault("hooks", app.hooks)
        return {**arguments, "plugins": (*app.plugins, *arguments.get("plugins", ()))}

    @asynccontextmanager
    async def _running_worker(self) -> AsyncIterator[Runner]:
        runner = await run(**{**self._options, "handle_signals": False})
        watch = asyncio.get_running_loop().create_task(self._watch(runner), name="graphile-worker watch")
        try:
            yield runner
        finally:
            watch.cancel()
            if not runner.is_stopping:
                await runner.stop("the application is ending")
            elif not runner.is_stopped:
                await runner.wait()

    async def _watch(self, runner: Runner) -> None:
        """Notice when the worker ends although the application goes on."""
        try:
            await runner.wait()
        except BaseException as error:
            if is_our_end(error):
                raise
            logger.critical("the worker in this process died", exc_info=True)
        else:
            logger.critical("the worker in this process has ended, the application has not")
        if self._on_worker_failure == "exit":
            os.kill(os.getpid(), signal.SIGTERM)


def worker_app_of(state: Any) -> GraphileWorkerApp:
    """The `GraphileWorkerApp` of a request, from `request.state`."""
    found = getattr(state, STATE_KEY, None)
    if not isinstance(found, GraphileWorkerApp):
        raise RuntimeError(NOT_OPEN)
    return found
