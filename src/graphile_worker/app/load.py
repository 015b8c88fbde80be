"""Finds an app by its name, `module:attribute`, and refuses anything else."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from ..errors import AppLoadError, ConfigError
from ..tasks.loading.import_module import attribute_of, import_place
from ..tasks.task import Task
from .application import App, check_lifespan, is_context_manager, name_of

EXPECTED = "expected an App, or a function with @asynccontextmanager that yields one or its extensions"


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
            f"{source}: {_shown(value)} is not an app; {EXPECTED}. "
            f"For tasks use --tasks {name}, or App(tasks=...)"
        )
    if not is_context_manager(value) and not callable(value):
        raise AppLoadError(f"{source}: {_shown(value)} is not an app; {EXPECTED}")
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
