"""Where a task is defined, as a text by which another process finds it again.

    package.module:name            a module that can be imported by its name
    /srv/app/jobs.py:name          a single file, such as the program itself
    /srv/app/tasks//mail/send.py:name    a file in a folder of tasks, whose modules have names of their own

The name may be dotted. It leads to the task, or to its function.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import TaskLoadError
from ..tasks.decorator import as_task
from ..tasks.loading.import_module import TaskFolder, attribute_of, import_file, import_name
from ..tasks.signature import load_error
from ..tasks.task import AnyTask, Task

SEPARATOR = "//"
"""Between a folder of tasks and a file in it."""


def where_is(task: AnyTask, executor: str) -> str:
    """The text for a task; TaskLoadError if no other process could find it."""
    module, name = _home(task)
    if module is None or name is None:
        raise _refusal(task, executor, _why_not(task))
    place = _place(module)
    if place is None:
        raise _refusal(
            task, executor, "it was defined in a program without a file, where no process can import it"
        )
    return f"{place}:{name}"


def find_task(where: str, identifier: str) -> AnyTask:
    """The task that such a text describes, with this identifier; TaskLoadError if it cannot be found."""
    place, _, name = where.rpartition(":")
    module = _import(place)
    try:
        found = attribute_of(module, name)
    except AttributeError:
        raise TaskLoadError(
            f"the task {identifier!r} cannot be found: {place} has no attribute {name!r}"
        ) from None
    task = as_task(found, identifier)
    task._prepare()
    return task


def find_function(where: str) -> Any:
    """The function that `package.module:function` names."""
    place, _, name = where.rpartition(":")
    if not place:
        raise TaskLoadError(f"expected package.module:function, got {where!r}")
    try:
        return attribute_of(_import(place), name)
    except AttributeError:
        raise TaskLoadError(f"{place} has no attribute {name!r}") from None


def _home(task: AnyTask) -> tuple[ModuleType | None, str | None]:
    """The module where the task or its function can be found, and its name there."""
    for module_name in (task.__module__, getattr(task.function, "__module__", None)):
        module = sys.modules.get(module_name or "")
        if module is not None and (name := _name_in(module, task)) is not None:
            return module, name
    return None, None


def _name_in(module: ModuleType, task: AnyTask) -> str | None:
    """The attribute of the module that leads to the task."""
    qualified = getattr(task.function, "__qualname__", None)
    if isinstance(qualified, str) and "<" not in qualified:
        try:
            if _is_it(attribute_of(module, qualified), task):
                return qualified
        except AttributeError:
            pass
    return next((name for name, value in list(vars(module).items()) if _is_it(value, task)), None)


def _is_it(value: object, task: AnyTask) -> bool:
    return (
        value is task or value is task.function or (type(value) is Task and value.function is task.function)
    )


def _place(module: ModuleType) -> str | None:
    name, file = module.__name__, module.__dict__.get("__file__")
    if name == "__main__":
        spec = getattr(module, "__spec__", None)
        if spec is not None and spec.name and not spec.name.endswith("__main__"):  # python -m package.module
            return str(spec.name)
        return os.path.abspath(str(file)) if file is not None and file.endswith(".py") else None
    if _is_importable(name, file):
        return name
    if file is None:
        return None
    top = sys.modules.get(name.partition(".")[0])
    folders = list(getattr(top, "__path__", ()))
    path: str = os.path.abspath(file)
    if folders and path.startswith(os.path.join(folders[0], "")):
        return f"{folders[0]}{SEPARATOR}{os.path.relpath(path, folders[0])}"
    return path


def _is_importable(name: str, file: str | None) -> bool:
    """Whether importing the name in a fresh interpreter with the same path finds the same file."""
    if any("." in part or not part for part in name.split(".")) or name.endswith("__task"):
        return False
    top = name.partition(".")[0]
    try:
        spec = importlib.machinery.PathFinder.find_spec(top)
    except (ImportError, ValueError):
        return False
    if spec is None:
        return False
    if "." not in name:
        origin = spec.origin
        return origin is not None and (file is None or os.path.realpath(origin) == os.path.realpath(file))
    places = list(spec.submodule_search_locations or ())
    return file is None or any(os.path.abspath(file).startswith(os.path.join(place, "")) for place in places)


def _import(place: str) -> ModuleType:
    folder, is_in_folder, file = place.partition(SEPARATOR)
    if is_in_folder:
        root = Path(folder)
        return TaskFolder(root).import_file(root / file)
    if os.sep in place or place.endswith(".py"):
        return import_file(Path(place))
    return import_name(place)


def _why_not(task: AnyTask) -> str:
    function = task.function
    name = getattr(function, "__qualname__", repr(function))
    if name.endswith("<lambda>"):
        return "it is a lambda"
    if "<locals>" in name:
        return f"it is defined inside the function {name.partition('.<locals>')[0]}"
    return f"{name} is not an attribute of the module {task.__module__}"


def _refusal(task: AnyTask, executor: str, why: str) -> TaskLoadError:
    return load_error(
        task.function,
        f"the task {task.identifier!r} cannot run in the executor {executor!r}, because another "
        f"process could not find it: {why}; define it at the top level of a module or in a task file",
    )
