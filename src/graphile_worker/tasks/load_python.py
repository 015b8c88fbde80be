"""From a Python module to its tasks.

In a folder, the file's task is the function named like the file (`-` reads as `_`), and every `@task` in it
is a task besides. In a single file or module they are every `@task`, or, where there is none, the functions
that `__all__` exports. Nothing is guessed: any other function may be a helper.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import TaskLoadError
from .decorator import as_task
from .registry import TaskRegistry
from .task import AnyTask, Task

logger = logging.getLogger("graphile_worker.tasks")


def add_tasks_of_file(registry: TaskRegistry, module: ModuleType, path: str, identifier: str) -> None:
    """Register what a file of a tasks folder defines; TaskLoadError if that is nothing."""
    own_name = _function_name(identifier.rpartition("/")[2])
    own = getattr(module, own_name, None)
    decorated = _decorated(module, only_own=True)
    if isinstance(own, Task):
        if not own._is_named:
            registry.add(own, identifier)
        # Jobs added with the task object carry its own identifier, so that one is served too.
        registry.add(own)
    elif _is_function_like(own):
        registry.add(as_task(own, identifier))
    elif isinstance(own, type) and not decorated:
        as_task(own, identifier)  # says why a class cannot be a task
    elif not decorated:
        raise TaskLoadError(
            f"no task found: expected a function named {own_name!r} (for the task {identifier!r}), or a "
            f"function with @task; {_what_is_there(module)}. A helper module's name must begin with '_'",
            path=path,
        )
    for task in decorated:
        registry.add(task)


def add_tasks_of_module(registry: TaskRegistry, module: ModuleType, path: str | None) -> None:
    """Register every task of a single file or module; TaskLoadError if there is none."""
    before = len(registry)
    decorated = _decorated(module, only_own=False)
    for task in decorated:
        registry.add(task)
    if not decorated:
        for name in getattr(module, "__all__", ()):
            _add_export(registry, module, name, path)
    own = getattr(module, _function_name(Path(path).name.partition(".")[0]), None) if path else None
    if _is_function_like(own):
        registry.add(as_task(own))
    if len(registry) == before:
        raise TaskLoadError(
            f"no task found in the module {module.__name__}: expected functions with @task, or functions "
            f"named in __all__; {_what_is_there(module)}",
            path=path or getattr(module, "__file__", None),
        )


def add_tasks_of_value(registry: TaskRegistry, value: Any, where: str) -> None:
    """Register what an attribute holds: a task, a function, a list or mapping of them, or a module."""
    if isinstance(value, ModuleType):
        add_tasks_of_module(registry, value, None)
    elif isinstance(value, Mapping):
        for identifier, thing in value.items():
            registry.add(as_task(thing, identifier))
    elif isinstance(value, Task) or callable(value):
        registry.add(as_task(value))
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for thing in value:
            registry.add(as_task(thing))
    else:
        raise TaskLoadError(
            f"{where} is {value!r}; expected a task, a list of tasks, or a mapping of names to functions"
        )


def _add_export(registry: TaskRegistry, module: ModuleType, name: str, path: str | None) -> None:
    value = getattr(module, name, None)
    if inspect.isroutine(value):
        registry.add(as_task(value, name))
    else:
        logger.warning("%s: %r in __all__ is not a function, so it is no task", path or module.__name__, name)


def _function_name(file_name: str) -> str:
    return file_name.replace("-", "_")


def _is_function_like(value: Any) -> bool:
    return callable(value) and not isinstance(value, type | Task)


def _decorated(module: ModuleType, *, only_own: bool) -> list[AnyTask]:
    """The tasks among the module's names; with `only_own` without those imported from another module."""
    seen: dict[int, AnyTask] = {}
    for value in vars(module).values():
        if isinstance(value, Task) and (not only_own or value.__module__ == module.__name__):
            seen.setdefault(id(value), value)
    return list(seen.values())


def _what_is_there(module: ModuleType) -> str:
    names = [
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__
    ]
    return f"it has the functions {', '.join(names)}" if names else "it has no functions"
