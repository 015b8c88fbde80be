"""App: what an application brings to a worker, and finding one by its name.

- `App` only holds things: tasks, recurring jobs, a lifespan, options. `lifespan` enters and leaves it, and
  the runner uses it.
- `collect` joins its recurring jobs, and `tasks_of` its tasks with those of a worker.
- `check_lifespan` refuses what can be told when a lifespan is defined, `open_lifespan` the rest, when it is
  called.
- `load_app` finds an app by its name, `module:attribute`, and refuses anything else.
"""

from __future__ import annotations

import copy
import inspect
import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack, overload

from ..config.calls import call_hooks, check_names
from ..errors import AppLoadError, ConfigError, CrontabError, TaskLoadError
from ..hooks import Events, Hooks, Plugin
from ..tasks.decorator import TaskDecorator, _make, as_task
from ..tasks.loading.import_module import attribute_of, import_place
from ..tasks.loading.load import load_tasks
from ..tasks.registry import TaskList, TaskRegistry, build_registry
from ..tasks.services import Extensions
from ..tasks.task import Task, TaskOptions
from ..values.concurrency import Lane, lanes_of
from ..values.flags import ACCEPTED, ALLOWLIST, FLAG_OPTIONS, FORBIDDEN, checked_flags, joined_flags
from ..values.option_groups import executors_of, spread
from ..values.options import OPTION_NAMES, WorkerOptions

if TYPE_CHECKING:
    from ..cron import CronItem, ParsedCronItem
    from ..executors.call import TaskExecutor
    from ..tasks.helpers import JobHelpers
    from ..values.flags import FlagSource
    from ..values.options import WorkerOptionValues

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
    "tasks", "extensions", "hooks", "plugins", "events", *FLAG_OPTIONS, "crontab", "cron_items", "lifespan",
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
        accepted_flags: FlagSource = None,
        flag_allowlist: FlagSource = None,
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
        if not callable(forbidden_flags):
            checked_flags(FORBIDDEN, forbidden_flags)
        self.accepted_flags = accepted_flags
        self.flag_allowlist = flag_allowlist
        self.cron_items: tuple[ParsedCronItem, ...] = collect(crontab, cron_items)
        check_lifespan(lifespan)
        self.lifespan = lifespan
        self.lanes: tuple[Lane, ...]
        """Lanes of its tasks."""
        self.lanes, slots = lanes_of(options.get("lanes"))
        self.executors: dict[str, TaskExecutor]
        """Executors of its tasks by name."""
        self.executors, settings = executors_of(options.get("executors"))
        lists = {
            name: None if callable(flags) else flags
            for name, flags in ((ACCEPTED, accepted_flags), (ALLOWLIST, flag_allowlist))
        }
        self.options: Mapping[str, Any] = _checked_options(
            {**options, **lists, "lanes": slots, "executors": settings}
        )
        """Options that this app sets."""
        self._tasks = TaskRegistry()
        self._register(tasks)

    @property
    def events(self) -> Events:
        """Where to observe every worker of this app: `@app.events.on(JobFailed)`."""
        return self.hooks.events

    @property
    def tasks(self) -> Mapping[str, Task[Any, Any]]:
        """The tasks by identifier."""
        return MappingProxyType(self._tasks._tasks)

    @overload
    def task(
        self, function: Callable[[JobHelpers], Coroutine[Any, Any, R]], /
    ) -> Task[Any, R, [JobHelpers], Coroutine[Any, Any, R]]: ...
    @overload
    def task(self, function: Callable[[JobHelpers], R], /) -> Task[Any, R, [JobHelpers], R]: ...
    @overload
    def task(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[P, Injected], Coroutine[Any, Any, R]], /
    ) -> Task[P, R, Concatenate[P, Injected], Coroutine[Any, Any, R]]: ...
    @overload
    def task(
        self, function: Callable[Concatenate[P, Injected], R], /
    ) -> Task[P, R, Concatenate[P, Injected], R]: ...
    @overload
    def task(
        self, function: Callable[[], Coroutine[Any, Any, R]], /
    ) -> Task[None, R, [], Coroutine[Any, Any, R]]: ...
    @overload
    def task(self, function: Callable[[], R], /) -> Task[None, R, [], R]: ...
    @overload
    def task(  # type: ignore[overload-cannot-match]
        self, function: Callable[Injected, Coroutine[Any, Any, R]], /
    ) -> Task[None, R, Injected, Coroutine[Any, Any, R]]: ...
    @overload
    def task(  # type: ignore[overload-cannot-match]
        self, function: Callable[Injected, R], /
    ) -> Task[None, R, Injected, R]: ...
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
            from ..tasks.loading.python import add_tasks_of_module

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
    check_names(options, (*OPTION_NAMES, *OBJECTS))
    given = spread({name: value for name, value in options.items() if value is not None})
    WorkerOptions.from_mapping(given)  # refuses wrong values here, where they are set
    return MappingProxyType(given)


def _refuse_options(app: App) -> None:
    functions = [name for name in (ACCEPTED, ALLOWLIST) if callable(getattr(app, name))]
    if names := [*app.options, *functions]:
        raise ConfigError(
            f"an App that a lifespan yields cannot set options ({', '.join(names)}), because it is too "
            "late for them; set them in the outer App, or in the configuration"
        )


def collect(crontab: str | None, items: Any) -> tuple[ParsedCronItem, ...]:
    """The items of a crontab's text and those defined in code. Raises CrontabError for an invalid one."""
    if items is None:
        items = ()
    if isinstance(items, str | bytes) or not isinstance(items, Iterable):
        raise CrontabError(f"cron_items: expected a list of CronItem, got {items!r}")
    items = tuple(items)
    if crontab is None and not items:
        return ()
    from ..cron import ParsedCronItem, parse_cron_item, parse_crontab
    from ..cron.crontab import check_identifiers

    found = list(parse_crontab(crontab, source="crontab of the app")) if crontab is not None else []
    for number, item in enumerate(items):
        is_parsed = isinstance(item, ParsedCronItem)
        found.append(item if is_parsed else parse_cron_item(item, source=f"item {number} of cron_items"))
    check_identifiers(found)
    return tuple(found)


EXPECTED = "expected a function with @asynccontextmanager, or an async context manager"


def check_lifespan(lifespan: Any) -> None:
    """Refuse what cannot be a lifespan, as far as that is known without calling it."""
    if lifespan is None or is_context_manager(lifespan):
        return
    if inspect.isasyncgenfunction(lifespan) or inspect.isgeneratorfunction(lifespan):
        raise ConfigError(
            f"lifespan: {name_of(lifespan)} is a generator function; put @asynccontextmanager (from "
            "contextlib) over `async def`"
        )
    if inspect.iscoroutinefunction(lifespan):
        raise ConfigError(
            f"lifespan: {name_of(lifespan)} is a coroutine function; {EXPECTED}: `yield` instead of `return`"
        )
    if isinstance(lifespan, type) and not hasattr(lifespan, "__aenter__"):
        raise ConfigError(f"lifespan: got the class {lifespan.__name__}; {EXPECTED}")
    if not callable(lifespan):
        raise ConfigError(f"lifespan: got {lifespan!r}; {EXPECTED}")
    if len(required := _required_parameters(lifespan)) > 1:
        raise ConfigError(
            f"lifespan: {name_of(lifespan)} takes {', '.join(required)}; it is called with the App, or "
            "without arguments"
        )


def open_lifespan(lifespan: Any, app: Any) -> Any:
    """The context manager: the lifespan itself, or what it returns."""
    if is_context_manager(lifespan):
        return lifespan
    manager = lifespan(app) if _required_parameters(lifespan) else lifespan()
    if is_context_manager(manager):
        return manager
    if inspect.iscoroutine(manager):
        manager.close()
    got = "a context manager without `async`" if hasattr(manager, "__enter__") else repr(manager)
    raise ConfigError(f"{name_of(lifespan)} returned {got}; {EXPECTED}")


def is_context_manager(value: Any) -> bool:
    """Whether it is an object that `async with` takes; a class is not."""
    return hasattr(type(value), "__aenter__") and hasattr(type(value), "__aexit__")


def name_of(thing: Any) -> str:
    """`module.name` of a function or class, else its repr."""
    name = getattr(thing, "__qualname__", None)
    return repr(thing) if name is None else f"{getattr(thing, '__module__', None)}.{name}"


def _required_parameters(function: Any) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [each.name for each in parameters if each.kind in kinds and each.default is each.empty]


DEFAULT = WorkerOptions().task_directory


def tasks_of(
    app: App, options: WorkerOptions, *, task_list: TaskList | None = None, is_named: bool | None = None
) -> TaskRegistry:
    """The tasks of the app, joined with `task_list` or with a task directory that was named.

    Without either, the default directory is for apps that have no tasks. `is_named` overrides whether the
    directory in the options counts as named.
    """
    if is_named is None:
        is_named = options.task_directory != DEFAULT
    registry = TaskRegistry()
    for task in app.tasks.values():
        registry.add(task)
    if task_list is not None:
        more = build_registry(task_list)
    elif is_named or (not registry and os.path.exists(options.task_directory)):
        more = load_tasks(options.task_directory)
    else:
        more = TaskRegistry()
    for task in more.values():
        registry.add(task)
    if not registry:
        raise TaskLoadError(
            f"{app.name} has no tasks, and there is no directory {options.task_directory!r}; register tasks "
            "with @app.task or App(tasks=[...]), or name them with --tasks or task_directory"
        )
    return registry


EXPECTED_APP = "expected an App, or a function with @asynccontextmanager that yields one or its extensions"


def load_app(source: str) -> App:
    """The app that `module:attribute` or `file.py:attribute` names; AppLoadError if there is none."""
    place, _, attribute = source.rpartition(":")
    if not place or not attribute:
        example = "shop.worker:app" if source.startswith(":") else f"{source.rstrip(':')}:app"
        raise AppLoadError(f"app: expected module:attribute, got {source!r}; for example {example}")
    module, where = _import(place)
    try:
        value = attribute_of(module, attribute)
    except AttributeError:
        raise AppLoadError(f"app: {where} has no attribute {attribute!r}; {_apps_of(module)}") from None
    app = as_app(value, source)
    app.name = source
    return app


def as_app(value: Any, source: str = "app") -> App:
    """The app itself, one made of a lifespan, or one loaded by name. `source` names the value in errors."""
    if isinstance(value, App):
        return value
    if isinstance(value, str):
        return load_app(value)
    if isinstance(value, Task) or _holds_tasks(value):
        name = source if ":" in source else "module:attribute"
        raise AppLoadError(
            f"{source}: {_shown(value)} is not an app; {EXPECTED_APP}. "
            f"For tasks use --tasks {name}, or App(tasks=...)"
        )
    if not is_context_manager(value) and not callable(value):
        raise AppLoadError(f"{source}: {_shown(value)} is not an app; {EXPECTED_APP}")
    if value is App:
        raise AppLoadError(f"{source}: this is the class App itself; expected an object, as in app = App()")
    try:
        check_lifespan(value)
    except ConfigError as error:
        raise AppLoadError(f"{source}: {error}") from None
    app = App(lifespan=value)
    app.name = name_of(value)
    return app


def _import(place: str) -> tuple[ModuleType, str]:
    try:
        found = import_place(place, refusal=AppLoadError)
    except AppLoadError as error:
        missing = error.__cause__
        if isinstance(missing, ModuleNotFoundError) and _is_part(missing.name, place):
            raise AppLoadError(
                f"app: there is no module {missing.name!r}; start the worker in the directory that has it, "
                "or install it in this Python"
            ) from None
        raise
    if found is None:
        raise AppLoadError(f"app: {place!r} is neither an existing Python file nor the name of a module")
    return found


def _is_part(name: str | None, place: str) -> bool:
    return name is not None and f"{place}.".startswith(f"{name}.")


def _holds_tasks(value: Any) -> bool:
    return isinstance(value, list | tuple | set | Mapping)


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, Task) else f"an object of type {type(value).__name__}"


def _apps_of(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, App)]
    if names:
        return f"did you mean {' or '.join(f'{name!r}' for name in names)}?"
    return "there is no App in it; write app = App(...) there"
