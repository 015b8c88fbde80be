"""Reads options from files and from the environment; each source is a flat mapping and a name for messages.

Names are checked here, so that a misspelt one is reported together with the place it was written in. Values
are given the right type; whether they are in bounds is for the option classes to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ..errors import ConfigError
from ..text import closest
from .settings import Setting, callable_names, known_settings

FILE_NAME = "graphile_worker.toml"
PROJECT_FILE = "pyproject.toml"
TABLE = "tool.graphile-worker"
PREFIX = "GRAPHILE_WORKER_"
PATHS = ("task_directory", "crontab_file", "health_file")
OTHER_NAMES = {
    "concurrent_jobs": "concurrency",
    "concurrentjobs": "concurrency",
    "connection": "connection_string",
    "crontab": "crontab_file",
    "jobs": "concurrency",
    "no_prepared_statements": "prepared_statements",
    "tasks": "task_directory",
    "usenodetime": "use_local_time",
}
"""What flags and other implementations call some options; only used to suggest the right name."""
_LOGGING = "the command `graphile-worker` takes it; a program sets up logging itself, see the module logging"
_JOB = "it is for adding a job: add_job, add_jobs and CronItem take it"
OF_OTHERS = {
    "health_file": "the command `graphile-worker` takes it, as --health-file or in its configuration",
    "log_format": _LOGGING,
    "log_level": _LOGGING,
    "processes": "the command `graphile-worker` takes it, as --processes; a call starts no processes",
    "once": "call run_once in place of run, or use the flag --once of the command `graphile-worker`",
    "schema_only": "call run_migrations, or use the flag --schema-only of the command `graphile-worker`",
    "watch": "use the flag --watch of the command `graphile-worker`",
    "cleanup": "call WorkerUtils.cleanup, or use the command `graphile-worker cleanup`",
    **dict.fromkeys(("job_key", "job_key_mode", "max_attempts", "priority", "queue_name", "run_at"), _JOB),
}
"""Options that another command or call takes, and which; a library call refuses them."""
_WORDS = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*(:[^\W\d][\w.]*)?")


class Source(msgspec.Struct, frozen=True):
    """Options from one place: values by dotted name, and for each name where exactly it was written."""

    values: dict[str, Any] = msgspec.field(default_factory=dict)
    places: dict[str, str] = msgspec.field(default_factory=dict)

    def put(self, name: str, value: Any, place: str) -> None:
        """Remember one value."""
        self.values[name] = value
        self.places[name] = place


def find_file(folder: Path) -> Path | None:
    """The configuration file of a folder: graphile_worker.toml, or a pyproject.toml that has our table."""
    own, project = folder / FILE_NAME, folder / PROJECT_FILE
    in_project = project.is_file() and _table(_parse(project)) is not None
    if own.is_file() and in_project:
        raise ConfigError(
            f"both {FILE_NAME} and [{TABLE}] in {PROJECT_FILE} exist in {folder}; keep one of them, "
            "or choose one with -C/--config"
        )
    if own.is_file():
        return own
    return project if in_project else None


def from_file(path: Path) -> Source:
    """Options from a TOML file: the table [tool.graphile-worker] if it has one, else the whole file."""
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

    An empty variable counts as not set. Variables with our prefix that are not options are left alone (other
    programs and container platforms make such names too), unless they are nearly an option's name.
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
        elif near := _nearest(
            variable.removeprefix(PREFIX), [name.removeprefix(PREFIX) for name in settings]
        ):
            raise ConfigError(f"unknown environment variable {variable}; did you mean {PREFIX}{near}?")
    return source


def from_call(values: Mapping[str, Any], place: str) -> Source:
    """Options from a call or the command line; None means not given."""
    source = Source()
    for name, value in values.items():
        if value is None:
            continue
        parts = _flatten({name: value}, "") if isinstance(value, Mapping) else [(name, value)]
        for key, part in parts:
            if key not in callable_names() and key not in known_settings():
                raise ConfigError(_unknown(key))
            source.put(key, part, place)
    return source


def refuse_options_of_others(names: Iterable[str]) -> None:
    """Refuse what a library call would ignore, and say who takes it."""
    for name in names:
        takes_it = OF_OTHERS.get(name)
        if takes_it is not None:
            raise ConfigError(f"{name}: this is not an option of this call; {takes_it}")


def _parse(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: the configuration file does not exist") from None
    except OSError as error:
        raise ConfigError(f"{path}: the configuration file cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error


def _table(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    table = (
        document.get("tool", {}).get("graphile-worker") if isinstance(document.get("tool"), dict) else None
    )
    return table if isinstance(table, dict) else None


def _flatten(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Nested tables as dotted names; hyphens read as underscores."""
    for key, value in values.items():
        name = prefix + key.replace("-", "_")
        if isinstance(value, Mapping) and any(known.startswith(f"{name}.") for known in known_settings()):
            yield from _flatten(value, f"{name}.")
        else:
            yield name, value


def _checked(setting: Setting, value: Any, place: str) -> Any:
    """A value as TOML gave it, if it has the option's type; a whole number may stand for seconds."""
    fits = isinstance(value, setting.kind) or (setting.kind is float and isinstance(value, int))
    if not fits or (isinstance(value, bool) and setting.kind is not bool):
        # A connection string of the wrong type may still hold a password.
        got = type(value).__name__ if setting.name == "connection_string" else repr(value)
        raise ConfigError(f"{place}: {setting.name}: expected {_expected(setting)}, got {got}")
    return value


def _from_text(setting: Setting, text: str, place: str) -> Any:
    try:
        return _WORDS[text.strip().lower()] if setting.kind is bool else setting.kind(text)
    except (ValueError, KeyError):
        raise ConfigError(f"{place}: expected {_expected(setting)}, got {text!r}") from None


def _expected(setting: Setting) -> str:
    names = {bool: "true or false", int: "a whole number", float: "a number of seconds", str: "text"}
    return names[setting.kind]


def _absolute(name: str, value: Any, folder: Path) -> Any:
    """Paths in a file are relative to that file, wherever the command starts; modules stay as they are."""
    if name not in PATHS or not isinstance(value, str):
        return value
    path = folder / value
    return value if name == "task_directory" and _is_module(value) and not path.exists() else str(path)


def _is_module(value: str) -> bool:
    """Whether a text is a module with dots or with an attribute, and not a file such as jobs.py."""
    place = value.partition(":")[0]
    return bool(_MODULE.fullmatch(value)) and not place.endswith(".py") and ("." in place or ":" in value)


def _unknown(name: str) -> str:
    near = _nearest(name, list(known_settings()))
    hint = f"; did you mean {near!r}?" if near else f"; known options: {', '.join(known_settings())}"
    return f"unknown option {name!r}{hint}"


def _nearest(name: str, known: list[str]) -> str | None:
    meant = OTHER_NAMES.get(name.lower())
    if meant is not None:
        return next(option for option in known if option.lower() == meant)
    return closest(name, known, cutoff=0.75)
