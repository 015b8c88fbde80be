"""Loads plugins by name: an entry point of the group `graphile_worker.plugins`, or `module:attribute`."""

from __future__ import annotations

import importlib
import inspect
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from ..errors import ConfigError
from ..errors.text import message_of
from ..values import add_to_path
from ..values.option_groups import options_of, without_plugin
from ..values.text import closest

if TYPE_CHECKING:
    from ..hooks import Plugin

GROUP = "graphile_worker.plugins"

logger = logging.getLogger("graphile_worker.plugins")


def load_plugins(given: Iterable[Plugin | str], tables: Mapping[str, Any]) -> tuple[Plugin, ...]:
    """The plugins in their order, with those that are given by name loaded and made.

    A name whose class is among the objects, or was loaded under another name, is not loaded again.
    """
    given = tuple(given)
    found: list[Plugin] = []
    for each in given:
        if not isinstance(each, str):
            found.append(each)
            continue
        target = _find(each)
        known = [*found, *(other for other in given if not isinstance(other, str))]
        if not any(type(plugin) is target or plugin is target for plugin in known):
            found.append(_make(each, target, options_of(each, tables)))
    return tuple(found)


def warn_about_unused(given: Iterable[Plugin | str], tables: Mapping[str, Any]) -> None:
    """Log the options that no plugin gets."""
    names = [each for each in given if isinstance(each, str)]
    for option in without_plugin(names, tables):
        listed = f"the plugins are {', '.join(names)}" if names else "no plugin is listed in plugins"
        logger.warning("plugin_options: %s has no effect; %s", option, listed)


def _find(name: str) -> Any:
    """What a name stands for: a class, another callable, or a plugin."""
    name = name.strip()
    place = name if ":" in name else _entry_point(name)
    module_name, _, attribute = place.partition(":")
    add_to_path(Path.cwd())
    try:
        target: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(f"plugins: {name}: {_missing(module_name, error)}") from error
    except Exception as error:
        raise ConfigError(
            f"plugins: {name}: the module {module_name} cannot be imported: "
            f"{type(error).__name__}: {message_of(error)}"
        ) from error
    for part in attribute.split("."):
        try:
            target = getattr(target, part)
        except AttributeError:
            raise ConfigError(
                f"plugins: {name}: {module_name} has no attribute {attribute!r}{_plugins_in(target)}"
            ) from None
    return target


def _entry_point(name: str) -> str:
    """The `module:attribute` of a short name."""
    from importlib.metadata import entry_points

    known = {point.name: point.value for point in entry_points(group=GROUP)}
    if name in known:
        return known[name]
    if near := closest(name, known):
        hint = f"did you mean {near!r}?"
    elif "." in name:
        module, _, attribute = name.rpartition(".")
        hint = f"did you mean '{module}:{attribute}'?"
    else:
        hint = f"known names: {', '.join(sorted(known))}; for a class of your own, write module:attribute"
    raise ConfigError(f"plugins: there is no plugin {name!r}; {hint}")


def _missing(module: str, error: ImportError) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
        return (
            f"there is no module {error.name!r}; start the worker in the directory that has it, or install "
            "it in this Python"
        )
    return message_of(error)  # our own modules name the extra to install


def _make(name: str, target: Any, options: dict[str, Any]) -> Plugin:
    if not callable(target):
        if not _is_plugin(target):
            raise ConfigError(f"plugins: {name} is not a plugin: {_no_install(target)}")
        if options:
            raise ConfigError(
                f"plugin_options: {name} is an object, not a class, and takes no options; remove "
                f"{', '.join(options)}"
            )
        return target
    _check_options(name, target, options)
    try:
        plugin = target(**options)
    except Exception as error:
        raise ConfigError(f"plugins: {name}: {message_of(error)}") from error
    if not _is_plugin(plugin):
        raise ConfigError(f"plugins: {name} is not a plugin: {_no_install(plugin)}")
    return plugin


def _check_options(name: str, target: Any, options: dict[str, Any]) -> None:
    """Refuse options that the constructor does not take, and say which ones it takes."""
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):  # not written in Python
        return
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return
    known = [each.name for each in parameters if each.kind in (each.KEYWORD_ONLY, each.POSITIONAL_OR_KEYWORD)]
    for option in options:
        if option not in known:
            near = closest(option, known)
            hint = f"did you mean {near!r}?" if near else f"its options: {', '.join(known) or 'none'}"
            raise ConfigError(f"plugin_options: {name} has no option {option!r}; {hint}")
    needed = [each.name for each in parameters if each.name in known and each.default is each.empty]
    if missing := [option for option in needed if option not in options]:
        raise ConfigError(f"plugin_options: {name} needs {', '.join(missing)}; set plugin_options.{name}")


def _is_plugin(value: Any) -> TypeGuard[Plugin]:
    return callable(getattr(value, "install", None))


def _no_install(value: Any) -> str:
    return f"an object of type {type(value).__name__} has no method install(hooks)"


def _plugins_in(module: Any) -> str:
    """The classes of a module that could be meant."""
    names = [
        name for name, value in vars(module).items()
        if inspect.isclass(value) and _is_plugin(value) and value.__module__ == module.__name__
    ] if inspect.ismodule(module) else []  # fmt: skip
    return f"; did you mean {' or '.join(map(repr, names))}?" if names else ""
