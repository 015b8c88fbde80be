"""Names of plugins and the tables of their options, as a configuration has them.

Tables are kept flat, with dotted names: sources of options are merged name by name, and `config` shows them
as an environment variable would have them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .errors import ConfigError

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
