"""Merges the sources of options: defaults < app < file < environment < command line or call.

The result knows the source of every value, and an error about a value names its source.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from ..errors import ConfigError
from ..values.option_groups import spread
from ..values.options import OPTION_NAMES, WorkerOptions
from .settings import ADMIN, AdminOptions, ProcessOptions, Setting, known_settings
from .sources import Source, find_file, from_call, from_environment, from_file

DEFAULT = "default"
OF_HOST = ("app", "connection_string", "schema")
"""What only the settings of a host say, and flags: where the jobs are, and which tasks there are."""
DEFAULT_TASKS = WorkerOptions().task_directory


class Host(msgspec.Struct, frozen=True):
    """A framework that runs workers and commands, such as Django.

    Its settings take the place of the configuration file; `flags` are those that it has read itself.
    """

    settings: Source
    flags: dict[str, Any] = msgspec.field(default_factory=dict)


class Settings(msgspec.Struct, frozen=True):
    """All configured options. `places` has the source of each option that is set."""

    worker: WorkerOptions
    process: ProcessOptions
    places: dict[str, str]
    admin: AdminOptions = msgspec.field(default_factory=AdminOptions)

    @property
    def provenance(self) -> dict[str, str]:
        """The source of every option that has a value, by dotted name."""
        names = [
            name
            for name, setting in known_settings().items()
            if setting.owner is not WorkerOptions or _exists(setting, self.worker)
        ]
        return {name: _place(name, self.places) for name in names}

    @property
    def grace(self) -> float | None:
        """The grace of the worker; None if only its app knows."""
        return self.worker.grace if not self.process.app or "grace" in self.places else None

    def over(self, values: Mapping[str, Any], place: str) -> Settings:
        """These settings over the options of an app: those apply where no other source sets the option."""
        free = {name: value for name, value in values.items() if not self._is_set(name)}
        tables = {
            name: value | getattr(self.worker, name)
            for name, value in values.items()
            if isinstance(value, dict) and name in self.places
        }
        if not free and not tables:
            return self
        mark_named(free, Path.cwd())
        try:
            worker = self.worker.with_values(**free, **tables)
        except ConfigError as error:
            raise ConfigError(f"{place}: {error}") from error
        places = {name: f"{place}, {self.places[name]}" for name in tables}
        return replace(self, worker=worker, places=self.places | dict.fromkeys(free, place) | places)

    def _is_set(self, name: str) -> bool:
        return any(other == name or other.startswith(f"{name}.") for other in self.places)


def resolve(
    call_values: Mapping[str, Any],
    environ: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    config_file: str | Path | None = None,
) -> tuple[WorkerOptions, dict[str, str]]:
    """The options of a worker or client, and the source of each value."""
    settings = resolve_settings(call_values, environ, cwd, config_file)
    return settings.worker, {
        name: place
        for name, place in settings.provenance.items()
        if known_settings()[name].owner is WorkerOptions
    }


def combine(
    options: WorkerOptions | None, values: Mapping[str, Any], app_options: Mapping[str, Any] | None = None
) -> WorkerOptions:
    """The options of a library call: its values over `options`, or else over configuration and app.

    None means unset.
    """
    given = {name: value for name, value in values.items() if value is not None}
    if options is None:
        return resolve_settings(given).over(app_options or {}, "app").worker
    given = spread(given)
    WorkerOptions.from_mapping(given)  # its errors name unknown options
    return options.with_values(**given)


def resolve_settings(
    call_values: Mapping[str, Any],
    environ: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    config_file: str | Path | None = None,
    *,
    call: str = "call",
    host: Host | None = None,
) -> Settings:
    """The same with the options of a process. `call` names the source of `call_values` in errors."""
    folder = Path.cwd() if cwd is None else Path(cwd)
    environment = from_environment(os.environ if environ is None else environ)
    if host is None:
        # `folder / absolute_path` is the absolute path
        path = find_file(folder) if config_file is None else folder / config_file
        sources = [from_file(path)] if path is not None else []
    else:
        sources = [host.settings]
        if config_file is not None:
            sources.append(from_file(folder / config_file))
        environment = environment.without(OF_HOST)
        call_values = host.flags | {name: each for name, each in call_values.items() if each is not None}
    values, places = _merged([*sources, environment, from_call(call_values, call)])
    mark_named(values, folder)
    worker = _build(WorkerOptions, values, places)
    process = _build(ProcessOptions, values, places)
    return Settings(worker, process, places, _build(AdminOptions, values, places, ADMIN))


def mark_named(values: dict[str, Any], folder: Path) -> None:
    """Make paths absolute, so never equal to a default.

    A crontab that was named must exist; a task directory that was named is used beside the tasks of an app.
    """
    if isinstance(values.get("crontab_file"), str):
        values["crontab_file"] = str(folder / values["crontab_file"])
    if values.get("task_directory") == DEFAULT_TASKS:
        values["task_directory"] = str(folder / DEFAULT_TASKS)


def _merged(sources: list[Source]) -> tuple[dict[str, Any], dict[str, str]]:
    """Later sources win. An object for a group of options replaces the whole group; tables are merged."""
    values: dict[str, Any] = {}
    places: dict[str, str] = {}
    for source in sources:
        for name, value in source.values.items():
            for earlier in [key for key in values if key.startswith(f"{name}.")]:
                del values[earlier], places[earlier]
            if isinstance(value, dict) and isinstance(values.get(name), dict):
                values[name] = values[name] | value
                places[name] += f", {source.places[name]}"
                continue
            values[name] = value
            places[name] = source.places[name]
    return values, places


def _build(cls: type[Any], values: Mapping[str, Any], places: Mapping[str, str], prefix: str = "") -> Any:
    names = OPTION_NAMES if cls is WorkerOptions else cls.__struct_fields__
    nested: dict[str, Any] = {}
    for name, value in values.items():
        if not name.startswith(prefix):
            continue
        first, *inner = name.removeprefix(prefix).split(".")
        if first in names:
            target = nested
            for part in (first, *inner)[:-1]:
                target = target.setdefault(part, {})
            target[(first, *inner)[-1]] = value
    try:
        return cls.from_mapping(nested) if hasattr(cls, "from_mapping") else cls(**nested)
    except ConfigError as error:
        option = str(error).partition(":")[0]
        place = places.get(option)
        raise ConfigError(f"{place}: {error}" if place else str(error)) from error


def _place(name: str, places: Mapping[str, str]) -> str:
    """The source of an option: its own entry, or that of its group."""
    while name:
        if name in places:
            return places[name]
        name = name.rpartition(".")[0]
    return DEFAULT


def _exists(setting: Setting, options: WorkerOptions) -> bool:
    """Whether the option has a value; options of a group that is off have none."""
    value: Any = options
    for part in setting.path[:-1]:
        value = getattr(value, part, None)
    return value is not None
