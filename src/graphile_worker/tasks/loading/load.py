"""Loads the tasks of a worker from a folder, a file, a module, or an attribute of one.

    tasks                      a folder: every file in it, nested folders too
    jobs.py                    a file
    jobs.py:exported           one attribute of it: a task, a list or a mapping
    package.module             a module
    package.module:exported    one attribute of it

Any fault is an error that names file and line; a worker never starts with only a part of its tasks.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from types import ModuleType

from ...errors import TaskLoadError
from ..registry import TaskRegistry
from ..task import AnyTask, Task
from .files import TaskFile, find_task_files
from .import_module import MODULE, TaskFolder, attribute_of, explained, import_place, import_single
from .python import add_tasks_of_file, add_tasks_of_module, add_tasks_of_value

_CAN_EXECUTE = os.name == "posix"
_UNREADABLE = "its tasks cannot be read"  # imported, but what it defines cannot be inspected
_OF_NODE = (".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".js.map")
_SHOWN = 3

logger = logging.getLogger("graphile_worker.tasks")


def load_tasks(source: str | Path) -> TaskRegistry:
    """The tasks of a folder, file or module; TaskLoadError if there are none or one is invalid.

    A string without a dot or colon, and any `Path`, is a file or folder, never a module.
    """
    registry = TaskRegistry()
    path = Path(os.path.abspath(source))
    if path.is_dir():
        _load_folder(registry, path)
    elif path.is_file():
        with explained(str(path), path.parent, _UNREADABLE):
            add_tasks_of_module(registry, import_single(path), str(path))
    elif isinstance(source, str) and (target := _split(source)) is not None:
        with explained(source, Path.cwd(), _UNREADABLE):
            _load_target(registry, *target)
    else:
        raise _missing(path)
    if not registry:
        raise TaskLoadError(f"no tasks found in {source}; a worker needs at least one")
    return registry


def _load_folder(registry: TaskRegistry, root: Path) -> None:
    folder = TaskFolder(root)
    groups = find_task_files(root)
    of_node: list[str] = []
    for identifier, files in groups.items():
        python = next((file for file in files if file.extension == ".py"), None)
        executables = [file for file in files if file is not python and _CAN_EXECUTE and file.is_executable]
        if python is not None:
            with explained(str(python.path), root, _UNREADABLE):
                add_tasks_of_file(registry, folder.import_file(python.path), str(python.path), identifier)
            _warn_of_unused(identifier, python, executables)
        elif executables:
            registry.add(_executable_task(executables[0]))
            _warn_of_unused(identifier, executables[0], executables[1:])
        else:
            _warn_of_no_task(identifier, files, of_node)
    if of_node:
        more = f", … ({len(of_node)} files)" if len(of_node) > _SHOWN else ""
        logger.info("%s: left to Node's workers: %s%s", root, ", ".join(of_node[:_SHOWN]), more)
    if not registry:
        raise TaskLoadError(
            "there is no task in it; put a file hello.py with a function hello(payload, helpers) there",
            path=str(root),
        )


def _executable_task(file: TaskFile) -> AnyTask:
    from ..executables.executable import executable_task  # most folders have none, and the import takes time

    return executable_task(file.identifier, file.path)


def _load_target(registry: TaskRegistry, place: str, attribute: str) -> None:
    """Load `place:attribute`, or all of `place` if there is no attribute."""
    found = import_place(place)
    if found is None:
        raise _missing(Path(os.path.abspath(place)))
    module, where = found
    if not attribute:
        add_tasks_of_module(registry, module, getattr(module, "__file__", None))
        return
    try:
        value = attribute_of(module, attribute)
    except AttributeError:
        raise TaskLoadError(f"{where} has no attribute {attribute!r}; {_tasks_of(module)}") from None
    add_tasks_of_value(registry, value, f"{where}:{attribute}")


def _split(source: str) -> tuple[str, str] | None:
    """Split into a module or file and an attribute; None if the text can only be a path."""
    place, colon, attribute = source.rpartition(":") if ":" in source else (source, "", "")
    if colon or (MODULE.fullmatch(source) and "." in source and not source.endswith(".py")):
        return place, attribute
    return None


def _missing(path: Path) -> TaskLoadError:
    hint = "create it with a file such as hello.py in it, or set its path with --tasks or task_directory"
    file = path.with_name(path.name + ".py")
    if file.is_file():
        hint = f"there is a file {file.name}: use --tasks {file.name} or task_directory={file.name!r}"
    return TaskLoadError(f"the task directory '{path}' does not exist; {hint}")


def _warn_of_unused(identifier: str, used: TaskFile, others: list[TaskFile]) -> None:
    for other in others:
        logger.warning(
            "task %r: %s is used, so %s is not; rename one of them", identifier, used.path, other.path
        )


def _warn_of_no_task(identifier: str, files: list[TaskFile], of_node: list[str]) -> None:
    """Warn of each file, except modules of Node, which are collected in `of_node`."""
    for file in files:
        is_script = _has_shebang(file.path)
        if file.extension.endswith(_OF_NODE) and not is_script:
            of_node.append(identifier + file.extension)
            continue
        hint = " (it begins with #! but is not executable: chmod +x)" if is_script else ""
        logger.warning(
            "no task %r: %s is neither a Python file nor executable%s", identifier, file.path, hint
        )


def _has_shebang(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return False


def _tasks_of(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, Task)]
    return f"tasks there: {', '.join(names)}" if names else "there are no tasks in it"
