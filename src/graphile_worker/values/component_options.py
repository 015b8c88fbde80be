"""Options of a worker that are tables: settings of executors and of plugins, by name.

Executors have settings such as `process.processes = 4`. Objects from code and settings from elsewhere share
the argument `executors` of `run` and `App`.

The tables of plugins are kept flat, with dotted names: sources of options are merged name by name, and
`config` shows them as an environment variable would have them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import ConfigError

PROCESS = "process"
"""The executor that every worker has."""
KINDS = {
    "process": "graphile_worker.executors:ProcessExecutor",
    "dask": "graphile_worker.contrib.dask:DaskExecutor",
    "ray": "graphile_worker.contrib.ray:RayExecutor",
}
"""The classes of executors by the setting `kind`."""


def executors_of(given: Any) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The argument `executors` of a call: objects by name, and settings as the option has them."""
    if given is None:
        return {}, None
    if not isinstance(given, Mapping):
        raise ConfigError(f"executors: expected names and executors, got {given!r}")
    objects, settings = {}, {}
    for name, value in given.items():
        _check_name(name)
        if isinstance(value, Mapping) or "." in name:
            settings[name] = value
        elif all(callable(getattr(value, method, None)) for method in ("start", "run", "close")):
            objects[name] = value
        else:
            raise ConfigError(f"executors: {name}: expected an executor or its settings, got {value!r}")
    return objects, settings or None


def checked_executors(given: object) -> dict[str, Any]:
    """The option: values by `name.setting`. Numbers may be text, as in the environment."""
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"executors: expected names and settings, such as process.processes=4, got {given!r}"
        )
    flat: dict[str, Any] = {}
    for name, value in given.items():
        _check_name(name)
        for key, inner in value.items() if isinstance(value, Mapping) else [(None, value)]:
            full = name if key is None else f"{name}.{key}"
            if "." not in full:
                raise ConfigError(
                    f"executors: {full}: expected settings, such as {full}.processes=4, got {inner!r}"
                )
            flat[full] = _number(inner)
    return flat


def settings_by_name(flat: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The settings of each executor."""
    found: dict[str, dict[str, Any]] = {}
    for full, value in flat.items():
        name, _, setting = full.partition(".")
        found.setdefault(name, {})[setting.replace("-", "_")] = value
    return found


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise ConfigError(f"executors: expected a name of printable characters, got {name!r}")


def _number(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


SECRETS = ("auth", "credential", "dsn", "key", "password", "secret", "token", "url")
"""Parts of names of options whose values may be secret."""


def checked_names(names: Any) -> list[str]:
    """The names of plugins, each once. Objects are for calls, not for options."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ConfigError(f"plugins: expected a list of names, got {names!r}")
    found = list(dict.fromkeys(names))
    for name in found:
        if not isinstance(name, str):
            raise ConfigError(
                f"plugins: expected a name, got {name!r}; objects are for the argument plugins of run, "
                "serve, App and clients"
            )
        if not name.strip():
            raise ConfigError("plugins: a name is empty")
    return found


def flat_options(tables: Any) -> dict[str, Any]:
    """The options of all plugins by dotted name: `sentry.capture`."""
    if not isinstance(tables, Mapping):
        raise ConfigError(f"plugin_options: expected a table for each plugin, got {tables!r}")
    return _flat(tables, "")


def _flat(table: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        elif "." not in f"{prefix}{key}":
            raise ConfigError(
                f"plugin_options: {key}: expected a table of options for this plugin, got {value!r}"
            )
        else:
            found[f"{prefix}{key}"] = value
    return found


def options_of(plugin: str, tables: Mapping[str, Any]) -> dict[str, Any]:
    """The options of one plugin; hyphens in their names read as underscores."""
    found: dict[str, Any] = {}
    for name, value in tables.items():
        if not name.startswith(f"{plugin}."):
            continue
        *groups, last = name.removeprefix(f"{plugin}.").split(".")
        table = found
        for group in groups:
            table = table.setdefault(group.replace("-", "_") if table is found else group, {})
        table[last if groups else last.replace("-", "_")] = value
    return found


def shown_options(tables: Mapping[str, Any], hidden: str) -> dict[str, Any]:
    """The options for display, without values that may be secret."""
    return {
        name: hidden if any(word in name.rpartition(".")[2].lower() for word in SECRETS) else value
        for name, value in tables.items()
    }


def without_plugin(names: Iterable[str], tables: Mapping[str, Any]) -> list[str]:
    """The options whose plugin is not among the names."""
    prefixes = tuple(f"{name}." for name in names)
    return [name for name in tables if not name.startswith(prefixes)]
