"""Importing task modules, and finding what `module:attribute` names.

Modules are imported as `python -m` would, and file and line are reported if that fails. The parent of the
tasks folder is added to `sys.path`; `tasks/users/verify.py` becomes the module `tasks.users.verify`. So task
files can import each other, their helpers and the application, absolutely or relatively, and no file is run
twice. If another module has the folder's name, a unique prefix replaces it.

`import_place` and `attribute_of` find what `module:attribute` or `file.py:attribute` names: tasks for
`--tasks`, an app for `--app`.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from ...errors import TaskLoadError
from ...values import add_to_path

HERE = Path(__file__).parent


def import_name(name: str, *, refusal: type[TaskLoadError] = TaskLoadError) -> ModuleType:
    """Import a module by its dotted name, from the current folder first."""
    add_to_path(Path.cwd())
    with explained(name, Path.cwd(), refusal=refusal):
        return importlib.import_module(name)


def import_file(path: Path, *, refusal: type[TaskLoadError] = TaskLoadError) -> ModuleType:
    """Import a single file; its folder is added to `sys.path`."""
    add_to_path(path.parent)
    name = path.name.removesuffix(".py")
    if "." in name or not _is_name_free(name, path):
        name = _unique(path, name)
    return _import(name, path, path.parent, refusal)


class TaskFolder:
    """A folder of task modules, imported under one prefix."""

    def __init__(self, root: Path) -> None:
        self._root = root
        add_to_path(root.parent)
        self._prefix = root.name
        if "." in root.name or not _is_name_free(root.name, root):
            self._prefix = _unique(root, root.name)

    def import_file(self, path: Path) -> ModuleType:
        """Import a file in the folder, and its parent packages."""
        parts = path.relative_to(self._root).parts
        name, folder = self._prefix, self._root
        self._import_package(name, folder)
        for part in parts[:-1]:
            name, folder = f"{name}.{part}", folder / part
            self._import_package(name, folder)
        return _import(f"{name}.{path.name.removesuffix('.py')}", path, self._root)

    def _import_package(self, name: str, folder: Path) -> None:
        known = sys.modules.get(name)
        if known is not None:
            if not hasattr(known, "__path__"):  # `users.py` beside the folder `users`: it becomes the package
                known.__path__ = [str(folder)]
            return
        init = folder / "__init__.py"
        if init.is_file():
            _import(name, init, self._root)
            return
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [str(folder)]
        sys.modules[name] = importlib.util.module_from_spec(spec)


def _import(name: str, path: Path, root: Path, refusal: type[TaskLoadError] = TaskLoadError) -> ModuleType:
    known = sys.modules.get(name)
    if known is not None:
        if _is_from(known, path):  # imported by another task file
            return known
        name = f"{name}__task"  # a folder with the same name was imported
    search = [str(path.parent)] if path.name == "__init__.py" else None
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=search)
    if spec is None or spec.loader is None:
        raise refusal("Python cannot import this file", path=str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with explained(str(path), root, refusal=refusal):
            spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    package, _, own_name = name.rpartition(".")
    if package in sys.modules:
        setattr(sys.modules[package], own_name, module)
    return module


def _is_from(module: ModuleType, path: Path) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).resolve() == path.resolve()


@contextmanager
def explained(
    what: str,
    root: Path,
    problem: str = "cannot be imported",
    *,
    refusal: type[TaskLoadError] = TaskLoadError,
) -> Iterator[None]:
    """Turn any exception from the code in a file into a TaskLoadError with file and line."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except TaskLoadError as error:
        if error.path is not None or what.partition(":")[0] in str(error):
            raise
        raise refusal(str(error), path=what) from error
    except BaseException as error:
        path, line = _location(error, what, root)
        message = _last_line(error)
        if isinstance(error, SystemExit):
            message += "; a module with tasks or an app must not exit when it is imported"
        raise refusal(f"{problem}: {message}", path=path, line=line) from error


def _last_line(error: BaseException) -> str:
    """The last line of the traceback; the type alone if that cannot be formatted."""
    try:
        return traceback.format_exception_only(error)[-1].strip()
    except Exception:
        return type(error).__name__


def _location(error: BaseException, what: str, root: Path) -> tuple[str, int | None]:
    """The place of a syntax error, else the innermost frame in the folder, else the innermost frame."""
    if isinstance(error, SyntaxError) and error.filename is not None and Path(error.filename).is_file():
        return error.filename, error.lineno
    frames: list[tuple[str, int | None]] = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not _is_machinery(frame.f_code.co_filename)
    ]
    inside = [(file, line) for file, line in frames if _is_inside(Path(file), root)]
    return (inside or frames or [(what, None)])[-1]


def _is_machinery(file: str) -> bool:
    path = Path(file)
    is_ours = path.parent in (HERE, HERE.parent)
    return is_ours or file.startswith("<frozen importlib") or "importlib" in path.parts


def _is_inside(file: Path, root: Path) -> bool:
    return file.is_relative_to(root) and "site-packages" not in file.parts


def _is_name_free(name: str, path: Path) -> bool:
    """Whether the name is free for this path: importing it would find the path, or nothing."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return False
    if spec is None:
        return True
    places = [spec.origin, *(spec.submodule_search_locations or ())]
    return any(place is not None and Path(place).resolve() == path.resolve() for place in places)


def _unique(path: Path, name: str) -> str:
    import hashlib  # rarely needed, and slow to import

    digest = hashlib.sha256(str(path).encode()).hexdigest()[:12]
    return f"graphile_worker_tasks_{digest}_{name.replace('.', '_')}"


MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")


def import_place(
    place: str, *, refusal: type[TaskLoadError] = TaskLoadError
) -> tuple[ModuleType, str] | None:
    """The module of a file or of a dotted name, and its name in messages.

    None if it is neither an existing file nor the name of a module.
    """
    path = Path(os.path.abspath(place))
    if path.is_file():
        return import_single(path, refusal=refusal), str(path)
    if place.endswith(".py") or not MODULE.fullmatch(place):
        return None
    return import_name(place, refusal=refusal), place


def import_single(path: Path, *, refusal: type[TaskLoadError] = TaskLoadError) -> ModuleType:
    """The module of a single file."""
    if path.suffix != ".py":
        raise refusal(
            "is not a Python file; pass a folder of tasks, or a file that ends in .py", path=str(path)
        )
    return import_file(path, refusal=refusal)


def attribute_of(module: ModuleType, attribute: str) -> Any:
    """The value of a dotted attribute; AttributeError if there is none."""
    value: Any = module
    for name in attribute.split("."):
        value = getattr(value, name)
    return value
