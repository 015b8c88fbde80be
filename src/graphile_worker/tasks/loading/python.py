"""Finds the tasks in a Python module.

In a folder, the task of a file is the function with the file's name (`-` becomes `_`), plus every `@task` in
the file. In a single file or module, the tasks are every `@task`, or, if there is none, the functions in
`__all__`. Any other function may be a helper.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from ...errors import TaskLoadError
from ..decorator import as_task
from ..registry import TaskRegistry
from ..task import AnyTask, Task

logger = logging.getLogger("graphile_worker.tasks")


def add_tasks_of_file(registry: TaskRegistry, module: ModuleType, path: str, identifier: str) -> None:
    """Register the tasks of a file in a tasks folder; TaskLoadError if there are none."""
    own_name = _function_name(identifier.rpartition("/")[2])
    own = getattr(module, own_name, None)
    decorated = _decorated(module, only_own=True)
    if isinstance(own, Task):
        if not own._is_named:
            registry.add(own, identifier)
        # Jobs added with the task object have its own identifier, so register that one too.
        registry.add(own)
    elif _is_function_like(own):
        registry.add(as_task(own, identifier))
    elif isinstance(own, type) and not decorated:
        as_task(own, identifier)  # raises: a class cannot be a task
    elif not decorated:
        raise TaskLoadError(
            f"no task found: expected a function named {own_name!r} (for the task {identifier!r}), or a "
            f"function with @task; {_functions_of(module)}. The name of a helper module must begin with '_'",
            path=path,
        )
    for task in decorated:
        registry.add(task)


def add_tasks_of_module(registry: TaskRegistry, module: ModuleType, path: str | None) -> None:
    """Register the tasks of a single file or module; TaskLoadError if there are none."""
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
    # Its tasks may be known already, because another module has imported them.
    if len(registry) == before and not decorated and not _is_function_like(own):
        raise TaskLoadError(
            f"no task found in the module {module.__name__}: expected functions with @task, or functions "
            f"named in __all__; {_functions_of(module)}",
            path=path or getattr(module, "__file__", None),
        )


def add_tasks_of_value(registry: TaskRegistry, value: Any, where: str) -> None:
    """Register the value of an attribute: a task, a function, a list or mapping of them, or a module."""
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
        logger.warning(
            "%s: %r in __all__ is not a function, so it is not a task", path or module.__name__, name
        )


def _function_name(file_name: str) -> str:
    return file_name.replace("-", "_")


def _is_function_like(value: Any) -> bool:
    return callable(value) and not isinstance(value, type | Task)


def _decorated(module: ModuleType, *, only_own: bool) -> list[AnyTask]:
    """The tasks in the module's namespace; with `only_own`, without those imported from other modules."""
    seen: dict[int, AnyTask] = {}
    for value in vars(module).values():
        if isinstance(value, Task) and (not only_own or value.__module__ == module.__name__):
            seen.setdefault(id(value), value)
    return list(seen.values())


def _functions_of(module: ModuleType) -> str:
    names = [
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__
    ]
    return f"it has the functions {', '.join(names)}" if names else "it has no functions"
