"""App: what an application brings to a worker.

It only holds things. `lifespan` enters and leaves, `load` finds an app by its name, and the runner uses it.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack, overload

from ..config.calls import call_hooks, check_names
from ..errors import ConfigError
from ..executor_settings import executors_of
from ..hooks import Events, Hooks, Plugin
from ..lane import Lane, lanes_of
from ..options import WorkerOptions
from ..tasks.decorator import TaskDecorator, _make, as_task
from ..tasks.extensions import Extensions
from ..tasks.registry import TaskList, TaskRegistry
from ..tasks.task import Task, TaskOptions
from .check_lifespan import check_lifespan
from .cron_items import collect
from .flags import joined_flags

if TYPE_CHECKING:
    from ..cron import CronItem, ParsedCronItem
    from ..executors.call import TaskExecutor
    from ..option_values import WorkerOptionValues
    from ..tasks.helpers import JobHelpers
    from ..worker.plan import FlagSource

P = TypeVar("P")
R = TypeVar("R")
Injected = ParamSpec("Injected")

Lifespan = (
    Callable[[], AbstractAsyncContextManager[Any]]
    | Callable[["App"], AbstractAsyncContextManager[Any]]
    | AbstractAsyncContextManager[Any]
)
"""The type of `lifespan`: a function that returns an async context manager, or such an object."""
OBJECTS = (
    "tasks", "extensions", "hooks", "plugins", "events", "forbidden_flags", "crontab", "cron_items",
    "lifespan",
)  # fmt: skip
"""Arguments of `App` that are not options."""
NAMES_IN_RUN = {"task_list": "tasks", "parsed_cron_items": "cron_items"}


class App:
    """Tasks, application state, hooks and recurring jobs for the workers of one application.

    `graphile-worker --app shop.worker:app` and `run(app=app)` run it. [Application state](../application.md)
    explains the arguments. Options are defaults: a configuration file, the environment and the command line
    or call override them.
    """

    def __init__(
        self,
        *,
        tasks: TaskList | Iterable[TaskList | Callable[..., Any] | ModuleType] | ModuleType | None = None,
        extensions: Iterable[object] | Mapping[type[Any], object] = (),
        hooks: Hooks | None = None,
        plugins: Iterable[Plugin | str] = (),
        events: Events | None = None,
        forbidden_flags: FlagSource = None,
        crontab: str | None = None,
        cron_items: Iterable[CronItem | ParsedCronItem] = (),
        lifespan: Lifespan | None = None,
        **options: Unpack[WorkerOptionValues],
    ) -> None:
        self.name: str = sys._getframe(1).f_globals.get("__name__", "the app")
        """How messages name it: the module that made it, or the text after `--app`."""
        self.hooks: Hooks = call_hooks({"hooks": hooks, "events": events})
        """Interceptors and observers of every worker of this app: `@app.hooks.before_run`."""
        self.plugins: tuple[Plugin | str, ...] = tuple(plugins)
        self.extensions = Extensions(extensions)
        self.dependency_overrides: dict[Callable[..., Any], Callable[..., Any]] = {}
        """For tests: functions to call in place of those that `Depends` names, in workers started later."""
        self.forbidden_flags = forbidden_flags
        self.cron_items: tuple[ParsedCronItem, ...] = collect(crontab, cron_items)
        check_lifespan(lifespan)
        self.lifespan = lifespan
        self.lanes: tuple[Lane, ...]
        """Lanes of its tasks."""
        self.lanes, slots = lanes_of(options.get("lanes"))
        self.executors: dict[str, TaskExecutor]
        """Executors of its tasks by name."""
        self.executors, settings = executors_of(options.get("executors"))
        self.options: Mapping[str, Any] = _checked_options({**options, "lanes": slots, "executors": settings})
        """Options that this app sets."""
        self._tasks = TaskRegistry()
        self._register(tasks)

    @property
    def events(self) -> Events:
        """Where to observe every worker of this app: `@app.events.on(JobFailed)`."""
        return self.hooks.events

    @property
    def tasks(self) -> Mapping[str, Task[Any, ..., Any]]:
        """The tasks by identifier."""
        return MappingProxyType(self._tasks._tasks)

    @overload
    def task(self, function: Callable[[], R], /) -> Task[None, [], R]: ...
    @overload
    def task(self, function: Callable[[JobHelpers], R], /) -> Task[None, [JobHelpers], R]: ...
    @overload
    def task(self, function: Callable[[P], R], /) -> Task[P, [P], R]: ...
    @overload
    def task(self, function: Callable[[P, JobHelpers], R], /) -> Task[P, [P, JobHelpers], R]: ...
    @overload
    def task(
        self, function: Callable[Concatenate[P, Injected], R], /
    ) -> Task[P, Concatenate[P, Injected], R]: ...
    @overload
    def task(  # type: ignore[overload-cannot-match]
        self, function: Callable[Injected, R], /
    ) -> Task[None, Injected, R]: ...
    @overload
    def task(self, identifier: str | None = None, /, **options: Unpack[TaskOptions]) -> TaskDecorator: ...
    def task(self, function_or_identifier: Any = None, /, **options: Any) -> Any:
        """Make a function a task of this app: `@app.task`, `@app.task("users/verify", max_attempts=3)`.

        Takes the same as `task`. Two tasks of one identifier are an error.
        """
        if function_or_identifier is None or isinstance(function_or_identifier, str):
            return _Registering(self, function_or_identifier, options)
        if options:
            raise ConfigError(
                "app.task(function, ...) takes no options; write @app.task(queue_name=...) over the function"
            )
        task = _make(function_or_identifier, None, {}, depth=2)
        self._tasks.add(task, prepare=False)
        return task

    def _register(self, tasks: Any) -> None:
        """Register a task, or any nesting of lists, mappings and modules of them."""
        if tasks is None:
            return
        if isinstance(tasks, str | bytes):
            raise ConfigError(
                f"tasks: expected tasks, got {tasks!r}; to load a directory or module, set task_directory"
            )
        if isinstance(tasks, ModuleType):
            from ..tasks.load_python import add_tasks_of_module

            add_tasks_of_module(self._tasks, tasks, getattr(tasks, "__file__", None))
        elif isinstance(tasks, Mapping):
            for identifier, task in tasks.items():
                self._tasks.add(as_task(task, identifier), prepare=False)
        elif isinstance(tasks, Task) or callable(tasks):
            self._tasks.add(as_task(tasks), prepare=False)
        elif isinstance(tasks, Iterable):
            for each in tasks:
                self._register(each)
        else:
            raise ConfigError(f"tasks: expected tasks, or a list or mapping of them, got {tasks!r}")

    def _with(self, extensions: Extensions, apps: Iterable[App]) -> App:
        """A copy that has what its lifespan has yielded, and no lifespan."""
        whole = copy.copy(self)
        whole.lifespan = None
        whole.extensions = self.extensions._updated(extensions)
        whole.hooks = self.hooks.for_run()
        whole._tasks = TaskRegistry()
        whole._register(self.tasks)
        for app in apps:
            _refuse_options(app)
            whole._register(app.tasks)
            whole.hooks._join(app.hooks)
            whole.plugins += app.plugins
            whole.extensions = whole.extensions._updated(app.extensions)
            whole.dependency_overrides = {**app.dependency_overrides, **whole.dependency_overrides}
            whole.cron_items += app.cron_items
            whole.lanes += app.lanes
            whole.executors = {**whole.executors, **app.executors}
            whole.forbidden_flags = joined_flags(whole.forbidden_flags, app.forbidden_flags)
        return whole

    def __repr__(self) -> str:
        return f"<App {self.name}: {', '.join(self._tasks) or 'no tasks'}>"


class _Registering(TaskDecorator):
    """Returned by `@app.task(...)` with arguments."""

    def __init__(self, app: App, identifier: str | None, options: Mapping[str, Any]) -> None:
        super().__init__(identifier, options)
        self._app = app

    def __call__(self, function: Callable[..., Any], /) -> Any:
        task = _make(function, self._identifier, self._options, depth=2)
        self._app._tasks.add(task, prepare=False)
        return task


def _checked_options(options: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in options:
        if name in NAMES_IN_RUN:
            raise ConfigError(f"{name}: App has no such argument; did you mean {NAMES_IN_RUN[name]!r}?")
    check_names(options, (*WorkerOptions.__struct_fields__, *OBJECTS))
    given = {name: value for name, value in options.items() if value is not None}
    WorkerOptions.from_mapping(given)  # refuses wrong values here, where they are set
    return MappingProxyType(given)


def _refuse_options(app: App) -> None:
    if app.options:
        raise ConfigError(
            f"an App that a lifespan yields cannot set options ({', '.join(app.options)}), because it is too "
            "late for them; set them in the outer App, or in the configuration"
        )
