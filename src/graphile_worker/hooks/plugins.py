"""Plugins: bundles of hooks, started and stopped with a worker if they want to be."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ..errors import PluginError
from ..faults import is_our_end, report

if TYPE_CHECKING:
    from ..job import Job
    from ..options import WorkerOptions
    from .emitter import Events
    from .hooks import Hooks

STOP_WITHIN = 30.0  # seconds for each plugin
PROGRAM_ENDS = (SystemExit, KeyboardInterrupt)
"""What may end the program from `start` and `stop`: the worker is not running then."""

logger = logging.getLogger("graphile_worker.plugins")


class Plugin(Protocol):
    """A bundle of observers and interceptors.

    It may also have `start` and `stop`, or one of them: see `PluginWithLifecycle`.
    """

    def install(self, hooks: Hooks) -> None:
        """Add observers and interceptors to `hooks`; called once per run, before anything starts."""
        ...


class PluginWithLifecycle(Plugin, Protocol):
    """A plugin that opens something for the length of a run: a server, an exporter, a background task."""

    async def start(self, worker: WorkerContext) -> None:
        """Called before the worker takes its first job. An exception keeps the worker from starting."""
        ...

    async def stop(self) -> None:
        """Called after all outcomes are written, if `start` succeeded. An exception is logged."""
        ...


class LivePool(Protocol):
    """The pool of a running worker, as its plugins see it. It may be read from any thread."""

    @property
    def running(self) -> Sequence[Job]:
        """The jobs that run now."""
        ...

    @property
    def concurrency(self) -> int:
        """The number of slots of all lanes."""
        ...

    @property
    def is_listening(self) -> bool:
        """Whether notifications arrive."""
        ...

    @property
    def seconds_since_answer(self) -> float:
        """How long ago the database answered a statement of this pool, or a heartbeat."""
        ...

    @property
    def stalled_since(self) -> float | None:
        """When slots became free without a successful fetch since, if too long ago; by `time.monotonic`."""
        ...


class WorkerContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a plugin learns about the worker that starts it."""

    pool_id: str
    """The value of `locked_by` in the jobs of this worker."""
    hooks: Hooks
    """The hooks of this run; what is added here ends with the run."""
    options: WorkerOptions
    pool: LivePool
    """What the worker is doing now."""

    @property
    def events(self) -> Events:
        """Where to observe this run."""
        return self.hooks.events


class Plugins:
    """The plugins of one worker, in the order of installation; stopped in reverse order."""

    def __init__(self) -> None:
        self._installed: list[Plugin] = []
        self._started: list[Plugin] = []

    def __len__(self) -> int:
        return len(self._installed)

    def add(self, *plugins: Plugin) -> None:
        self._installed += plugins

    def __iter__(self) -> Iterator[Plugin]:
        return iter(self._installed)

    async def start(self, worker: WorkerContext) -> None:
        """Start those that are not started yet; if one fails, stop the others and raise PluginError."""
        for plugin in self._installed:
            if any(plugin is started for started in self._started):
                continue
            try:
                if (start := _method(plugin, "start")) is not None:
                    await start(worker)
            except BaseException as error:
                await self.stop()
                if is_our_end(error) or isinstance(error, PROGRAM_ENDS):
                    raise
                raise PluginError(type(plugin).__name__, error) from error
            self._started.append(plugin)

    async def stop(self, within: float = STOP_WITHIN) -> None:
        """Stop those that were started, each within `within` seconds; failures are logged."""
        fault: BaseException | None = None
        while self._started:
            plugin = self._started.pop()
            try:
                if (stop := _method(plugin, "stop")) is not None:
                    async with asyncio.timeout(within):
                        await stop()
            except BaseException as error:
                if is_our_end(error) or isinstance(error, PROGRAM_ENDS):
                    fault = fault or error
                else:
                    report(logger, "plugin %s failed to stop", type(plugin).__name__, error=error)
        if fault is not None:
            raise fault


def _method(plugin: Plugin, name: str) -> Any:
    return getattr(plugin, name, None)
