"""The option `executors`: settings of executors by name, such as `process.processes = 4`.

Objects from code and settings from elsewhere share the argument `executors` of `run` and `App`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .errors import ConfigError

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
