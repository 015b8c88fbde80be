"""Checks of a lifespan: what can be told when it is defined, and the rest when it is called."""

from __future__ import annotations

import inspect
from typing import Any

from ..errors import ConfigError

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
