"""Hooks: the observers, interceptors and plugins of one worker or client.

Plugins are bundles of hooks, started and stopped with a worker if they want to be. A `DatabaseTarget` tells
them which database the worker or client uses.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import Context
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

import msgspec

from ..errors import PluginError
from .emitter import Events, RunEvents
from .faults import is_our_end, report
from .interceptors import (
    AfterRun,
    AroundRun,
    BeforeAdd,
    BeforeRun,
    KeptPart,
    OnRecovery,
    Redactor,
    check_redactor,
    redacted,
    resolve,
)
from .watchers import AddWatcher, RunWatcher, WatchedAdd, check_watcher

if TYPE_CHECKING:
    from ..values.job import Job
    from ..values.options import WorkerOptions
    from ..values.spec import JobSpec

Carrier = tuple[Callable[[], str | None], str]
"""Captures a part of the context as text, and the name of the function that restores it."""


class HookTable:
    """All hooks of one worker or client by kind, for the engine.

    The engine keeps a reference to these lists: change them in place.
    """

    __slots__ = (
        "add_watchers", "after_run", "around_run", "before_add", "before_run", "carriers", "engine_variables",
        "environments", "loop_blocked", "on_recovery", "redactors", "run_watchers",
    )  # fmt: skip

    def __init__(self) -> None:
        self.before_add: list[BeforeAdd] = []
        self.add_watchers: list[AddWatcher] = []
        self.before_run: list[BeforeRun] = []
        self.around_run: list[AroundRun] = []
        self.after_run: list[AfterRun] = []
        self.run_watchers: list[RunWatcher] = []
        self.on_recovery: list[OnRecovery] = []
        self.loop_blocked: list[Callable[[str, float], None]] = []
        self.redactors: list[Redactor] = []
        self.carriers: list[Carrier] = []
        self.environments: list[Callable[[], Mapping[str, str]]] = []
        self.engine_variables: list[Callable[[], object]] = []


class Hooks:
    """Observers (`events`), interceptors and plugins of one worker or client."""

    def __init__(self, *, events: Events | None = None, plugins: Iterable[Plugin] = ()) -> None:
        self.events = events if events is not None else Events()
        self.table = HookTable()
        """Interceptors and watchers by kind."""
        self._target: DatabaseTarget | None = None  # of the one worker or client that these serve
        self._plugins: list[Plugin] = []
        self._started_plugins: list[Plugin] = []
        self._runs: WeakSet[Hooks] = WeakSet()
        for plugin in plugins:
            self.install(plugin)

    # -- for applications and plugins ----------------------------------------------------------------------

    def install(self, plugin: Plugin) -> None:
        """Add the plugin's hooks; `start` and `stop` are called in each run that starts after this."""
        plugin.install(self)
        self._plugins.append(plugin)

    def before_add(self, interceptor: BeforeAdd) -> BeforeAdd:
        """Inspect, change or refuse jobs before they are added through this client or worker."""
        self._add("before_add", interceptor)
        return interceptor

    def watch_adds(self, watcher: AddWatcher) -> AddWatcher:
        """See the jobs of each add before they are sent, and their outcomes."""
        check_watcher("watch_adds", watcher)
        self._add("add_watchers", watcher)
        return watcher

    def before_run(self, interceptor: BeforeRun) -> BeforeRun:
        """Decide whether a task is called."""
        self._add("before_run", interceptor)
        return interceptor

    def around_run(self, interceptor: AroundRun) -> AroundRun:
        """Enclose each run: `async def around(job, call_next)` awaits `call_next()` and returns the outcome.

        It may keep a context manager open around the run and set context variables that the task sees.
        """
        self._add("around_run", interceptor)
        return interceptor

    def after_run(self, interceptor: AfterRun) -> AfterRun:
        """Get the outcome of each run before it is written."""
        self._add("after_run", interceptor)
        return interceptor

    def watch_runs(self, watcher: RunWatcher) -> RunWatcher:
        """See each job before it runs, and its outcome after that; encloses all interceptors."""
        check_watcher("watch_runs", watcher)
        self._add("run_watchers", watcher)
        return watcher

    def on_recovery(self, interceptor: OnRecovery) -> OnRecovery:
        """Decide about each job of a dead worker."""
        self._add("on_recovery", interceptor)
        return interceptor

    def redact(self, interceptor: Redactor) -> Redactor:
        """Change what is kept and shown of jobs: `def hide(part, task_identifier, value)` returns the value.

        `part` is "payload", "result" or "error". Payloads and results are plain JSON values. An error is a
        text: the function gets the message and the traceback in turn.
        """
        check_redactor(interceptor)
        self._add("redactors", interceptor)
        return interceptor

    def redacted(self, part: KeptPart, task_identifier: str, value: Any) -> Any:
        """The value as it may be kept and shown."""
        return redacted(self.table.redactors, part, task_identifier, value)

    def carry_context(self, capture: Callable[[], str | None], restore: str) -> None:
        """Carry a part of the context, such as the current trace, to tasks that an executor runs elsewhere.

        `capture` is called in the context of each such job and returns a text, or None for nothing.
        `restore` names a function as `package.module:function`. Where the task runs, it gets the text and
        returns a context manager that encloses the call.
        """
        self._add("carriers", (capture, restore))

    def carry_environment(self, capture: Callable[[], Mapping[str, str]]) -> None:
        """Carry a part of the context to tasks that are executable files, in environment variables.

        `capture` is called in the context of each such job, before the file is started.
        """
        self._add("environments", capture)

    def _on_loop_blocked(self, function: Callable[[str, float], None]) -> None:
        """Call it, in another thread, while the event loop is blocked: what blocks it, and since when.

        The time is by `time.monotonic`. Nothing on the loop can be used meanwhile, so it is no event.
        """
        self._add("loop_blocked", function)

    def _set_in_engine(self, function: Callable[[], object]) -> None:
        """Call it before the worker starts its own tasks, to set context variables for them.

        Tasks of jobs run in the same context unless a watcher of runs sets the variables to something else.
        """
        self._add("engine_variables", function)

    def _background_context(self) -> Context:
        """A context for work of the engine that belongs to no caller, such as the request that began it."""
        context = Context()
        for function in self.table.engine_variables:
            context.run(function)
        return context

    def _add(self, kind: str, interceptor: Any) -> None:
        getattr(self.table, kind).append(interceptor)
        for run in self._runs:
            run._add(kind, interceptor)

    # -- for the engine ------------------------------------------------------------------------------------

    def for_run(self) -> Hooks:
        """Hooks for one run: they start with a copy of these, and what is added to them ends with the run.

        What is added here during the run takes effect there too.
        """
        run = Hooks(events=RunEvents(self.events))
        run._copy(self)
        return run

    def _join(self, other: Hooks) -> None:
        """Add the hooks of another object to these, which are the hooks of a run."""
        if self in other._runs:
            return
        if isinstance(self.events, RunEvents):
            self.events.follow(other.events)
        self._copy(other)

    def _copy(self, other: Hooks) -> None:
        for kind in HookTable.__slots__:
            getattr(self.table, kind).extend(getattr(other.table, kind))
        self._plugins += other._plugins
        other._runs.add(self)

    async def start_plugins(self, worker: WorkerContext) -> None:
        """Start those that are not started yet. If one fails, stop the others and raise PluginError."""
        for plugin in self._plugins:
            if any(plugin is started for started in self._started_plugins):
                continue
            try:
                if (start := _method(plugin, "start")) is not None:
                    await start(worker)
            except BaseException as error:
                await self.stop_plugins()
                if is_our_end(error) or isinstance(error, PROGRAM_ENDS):
                    raise
                raise PluginError(type(plugin).__name__, error) from error
            self._started_plugins.append(plugin)

    async def stop_plugins(self) -> None:
        """Stop the plugins that were started, the last one first; failures are logged."""
        fault: BaseException | None = None
        while self._started_plugins:
            plugin = self._started_plugins.pop()
            try:
                if (stop := _method(plugin, "stop")) is not None:
                    async with asyncio.timeout(STOP_WITHIN):
                        await stop()
            except BaseException as error:
                if is_our_end(error) or isinstance(error, PROGRAM_ENDS):
                    fault = fault or error
                else:
                    report(logger, "plugin %s failed to stop", type(plugin).__name__, error=error)
        if fault is not None:
            raise fault

    async def _intercept_add(self, spec: JobSpec) -> JobSpec:
        """Pass the spec through all `before_add` interceptors. Watchers see it if one of them refuses it."""
        try:
            for interceptor in self.table.before_add:
                changed = await resolve(interceptor(spec))
                if changed is not None:
                    spec = changed
        except BaseException as error:
            if self.table.add_watchers:
                WatchedAdd(self.table.add_watchers, (spec,)).ended(None, error)
            raise
        return spec


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


def _method(plugin: Plugin, name: str) -> Any:
    return getattr(plugin, name, None)


class DatabaseTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Where jobs are added and run."""

    schema: str
    address: str | None = None
    """The server's host, or its socket; None if it is unknown or there are several servers."""
    port: int | None = None
    """None for a socket."""
