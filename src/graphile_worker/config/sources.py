"""Reads options from files and the environment into flat mappings of names to values.

Names and types are checked here, so that an error names the file or variable. The option classes check the
values.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ..errors import ConfigError
from ..values.option_groups import spread
from ..values.options import WorkerOptions
from ..values.text import closest
from .settings import Setting, callable_names, known_settings

FILE_NAME = "graphile_worker.toml"
PROJECT_FILE = "pyproject.toml"
TABLE = "tool.graphile-worker"
PREFIX = "GRAPHILE_WORKER_"
PATHS = ("task_directory", "crontab_file", "app")
MODULES = ("task_directory", "app")
"""Those of the paths that may also name a module."""
OTHER_NAMES = {
    "concurrent_jobs": "concurrency",
    "concurrentjobs": "concurrency",
    "connection": "connection_string",
    "crontab": "crontab_file",
    "jobs": "concurrency",
    "executor": "executors",
    "accept_flag": "accepted_flags",
    "allow_flag": "flag_allowlist",
    "forbid_flag": "forbidden_flags",
    "forbiddenflags": "forbidden_flags",
    "lane": "lanes",
    "plugin": "plugins",
    "no_prepared_statements": "prepared_statements",
    "application": "app",
    "tasks": "task_directory",
    "usenodetime": "use_local_time",
}
"""Names of options in flags and in other implementations, for suggestions only."""
_WORDS = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}
_PAIRS = {
    "executors": "names and settings, such as process.processes=4",
    "plugin_options": "options of plugins, such as sentry.capture=all",
    "lanes": "names and slots, such as video=2",
    "log_levels": "names and values, such as httpx=warning",
}
_BEGIN_OF_TABLE = re.compile(
    r"""^[ \t\ufeff]*\[?[ \t]*["']?tool["']?[ \t]*(\]|=|\.[ \t]*["']?graphile-worker)""", re.MULTILINE
)
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*(:[^\W\d][\w.]*)?")


class Source(msgspec.Struct, frozen=True):
    """Options from one source: values by dotted name, and the exact place of each."""

    values: dict[str, Any] = msgspec.field(default_factory=dict)
    places: dict[str, str] = msgspec.field(default_factory=dict)

    def put(self, name: str, value: Any, place: str) -> None:
        self.values[name] = value
        self.places[name] = place

    def without(self, names: Collection[str]) -> Source:
        values = {name: value for name, value in self.values.items() if name not in names}
        return Source(values, {name: self.places[name] for name in values})


def find_file(folder: Path) -> Path | None:
    """The configuration file in a directory: graphile_worker.toml, or a pyproject.toml with our table."""
    own, project = folder / FILE_NAME, folder / PROJECT_FILE
    in_project = project.is_file() and _may_have_table(project) and _table(_parse(project)) is not None
    if own.is_file() and in_project:
        raise ConfigError(
            f"both {FILE_NAME} and [{TABLE}] in {PROJECT_FILE} exist in {folder}; keep one of them, "
            "or choose one with -C/--config"
        )
    if own.is_file():
        return own
    return project if in_project else None


def from_file(path: Path) -> Source:
    """Options from a TOML file: its table [tool.graphile-worker], or the whole file without one."""
    document = _parse(path)
    table = _table(document)
    if table is None and path.name == PROJECT_FILE:
        raise ConfigError(f"{path}: there is no table [{TABLE}] in this file")
    source = Source()
    place = str(path)
    for name, value in _flatten(document if table is None else table, ""):
        setting = known_settings().get(name)
        if setting is None:
            raise ConfigError(f"{place}: {_unknown(name)}")
        source.put(name, _checked(setting, _absolute(name, value, path.parent), place), place)
    return source


def from_environment(environ: Mapping[str, str]) -> Source:
    """Options from GRAPHILE_WORKER_… variables, and the connection from DATABASE_URL.

    An empty variable is unset. Other variables with our prefix are ignored, because other programs and
    container platforms make such names too, unless they look like a misspelt option.
    """
    source = Source()
    if environ.get("DATABASE_URL"):
        source.put("connection_string", environ["DATABASE_URL"], "environment variable DATABASE_URL")
    given = {name: text for name, text in environ.items() if name.startswith(PREFIX) and text}
    if not given:
        return source
    settings = {setting.variable: setting for setting in known_settings().values()}
    for variable, text in given.items():
        setting = settings.get(variable)
        if setting is not None:
            place = f"environment variable {variable}"
            source.put(setting.name, _from_text(setting, text, place), place)
        elif near := nearest_name(
            variable.removeprefix(PREFIX), [name.removeprefix(PREFIX) for name in settings]
        ):
            raise ConfigError(f"unknown environment variable {variable}; did you mean {PREFIX}{near}?")
    return source


def from_call(values: Mapping[str, Any], place: str) -> Source:
    """Options from a call or the command line; None means unset."""
    source = Source()
    given = spread({name: value for name, value in values.items() if value is not None})
    for name, value in given.items():
        parts = _flatten({name: value}, "") if isinstance(value, Mapping) else [(name, value)]
        for key, part in parts:
            if key not in callable_names() and key not in known_settings():
                raise ConfigError(_unknown(key))
            source.put(key, part, place)
    return source


def from_settings(values: Mapping[str, Any], place: str) -> Source:
    """Options from the settings of another framework, whose values are those of Python; None means unset."""
    source = Source()
    for name, value in _flatten(values, ""):
        setting = known_settings().get(name)
        if setting is None and name not in callable_names():
            raise ConfigError(f"{place}: {_unknown(name)}")
        if value is not None:
            if setting is not None and setting.owner is not WorkerOptions:  # which checks its values itself
                value = _checked(setting, value, place)
            source.put(name, value, place)
    return source


def _may_have_table(project: Path) -> bool:
    """Whether a line could begin our table. Every start asks this, and TOML is slow to parse."""
    return _BEGIN_OF_TABLE.search(_text(project)) is not None


def _parse(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(_text(path))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: the configuration file does not exist") from None
    except OSError as error:
        raise ConfigError(f"{path}: the configuration file cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error


def _table(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    table = (
        document.get("tool", {}).get("graphile-worker") if isinstance(document.get("tool"), dict) else None
    )
    return table if isinstance(table, dict) else None


def _flatten(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Nested tables of options as dotted names; hyphens become underscores."""
    for key, value in values.items():
        name = prefix + key.replace("-", "_")
        if isinstance(value, Mapping) and any(known.startswith(f"{name}.") for known in known_settings()):
            yield from _flatten(value, f"{name}.")
        else:
            yield name, value


def _texts(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A table whose keys are dotted names, which TOML reads as nested tables unless they are quoted."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= _texts(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return found


def _pairs(text: str) -> dict[str, str]:
    """The table that a variable has as `name=value,name=value`. Raises ValueError."""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if not all(name.strip() and sign and value.strip() for name, sign, value in pairs):
        raise ValueError(text)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _toml_value(text: str) -> Any:
    """A value as a file would have it; what is no TOML is a text, so that texts need no quotes."""
    import tomllib

    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _checked(setting: Setting, value: Any, place: str) -> Any:
    """A value from TOML, if it has the option's type; seconds may be a whole number."""
    if setting.kind is dict and isinstance(value, Mapping):
        return _texts(value)
    fits = isinstance(value, setting.kind) or (setting.kind is float and isinstance(value, int))
    if not fits or (isinstance(value, bool) and setting.kind is not bool):
        # Even a connection string of the wrong type may hold a password.
        got = type(value).__name__ if setting.is_secret else repr(value)
        raise ConfigError(f"{place}: {setting.name}: expected {_expected(setting)}, got {got}")
    return value


def _from_text(setting: Setting, text: str, place: str) -> Any:
    try:
        if setting.name == "plugin_options":
            return {name: _toml_value(value) for name, value in _pairs(text).items()}
        if setting.kind is dict:
            return _pairs(text)
        if setting.kind is list:
            return [part.strip() for part in text.split(",") if part.strip()]
        return _WORDS[text.strip().lower()] if setting.kind is bool else setting.kind(text)
    except (ValueError, KeyError):
        got = "something else" if setting.is_secret else repr(text)
        raise ConfigError(f"{place}: expected {_expected(setting)}, got {got}") from None


def _expected(setting: Setting) -> str:
    names = {
        bool: "true or false",
        int: "a whole number",
        float: "a number of seconds",
        str: "text",
        list: "a list of strings",
        dict: _PAIRS.get(setting.name, "names and values"),
    }
    return names[setting.kind]


def _absolute(name: str, value: Any, folder: Path) -> Any:
    """Resolve a path relative to the configuration file; module names stay as they are."""
    if name not in PATHS or not isinstance(value, str):
        return value
    path = folder / value
    return value if name in MODULES and _is_module(value) and not path.exists() else str(path)


def _is_module(value: str) -> bool:
    """Whether a text is a dotted module or `module:attribute`, and not a file such as jobs.py."""
    place = value.partition(":")[0]
    return bool(_MODULE.fullmatch(value)) and not place.endswith(".py") and ("." in place or ":" in value)


def _unknown(name: str) -> str:
    near = nearest_name(name, known_settings())
    hint = f"; did you mean {near!r}?" if near else f"; known options: {', '.join(known_settings())}"
    return f"unknown option {name!r}{hint}"


def nearest_name(name: str, known: Collection[str]) -> str | None:
    """The known option that was most likely meant."""
    meant = OTHER_NAMES.get(name.lower())
    for option in known:
        if option.lower() == meant:
            return option
    return closest(name, known, cutoff=0.75)
