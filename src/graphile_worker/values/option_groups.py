"""Options of a worker that belong together, as objects: `recovery=RecoveryOptions(grace=30)`.

The configuration file, the environment and `config` have the options of `GROUPS` under names of their own,
without the group: `recovery_grace`. The local queue is a table there, with dotted names: `local_queue.size`.

Durations are seconds; a `timedelta` is accepted too. A field whose type is `Seconds` is checked as one.

Executors and plugins have tables of settings, such as `process.processes = 4`. Objects from code and
settings from elsewhere share the argument `executors` of `run` and `App`. The tables are kept flat, with
dotted names: sources of options are merged name by name, and `config` shows them as an environment variable
would have them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec
from msgspec.structs import force_setattr

from ..errors import ConfigError
from .retention import MAX_RETENTION, check_history_mode

Duration = float | timedelta
Seconds = float
T = TypeVar("T", bound=msgspec.Struct)

DAY = 86_400.0
PROCESS = "process"
"""The executor that every worker has."""
KINDS = {
    "process": "graphile_worker.executors:ProcessExecutor",
    "dask": "graphile_worker.contrib.dask:DaskExecutor",
    "ray": "graphile_worker.contrib.ray:RayExecutor",
}
"""The classes of executors by the setting `kind`."""
SECRETS = ("auth", "credential", "dsn", "key", "password", "secret", "token", "url")
"""Parts of names of options whose values may be secret."""


class RefetchDelayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Pause after a fetch that found few jobs, so that many idle workers do not overload the server."""

    duration: Seconds
    """Length of the pause, multiplied by a random factor from 0.5 to 1.5; at most the poll interval."""
    threshold: int = 0
    """Pause only if the last fetch returned at most this many jobs."""
    max_abort_threshold: int | None = None
    """New jobs that end the pause early: a random share of this number. By default 5 × size."""

    def __post_init__(self) -> None:
        check_durations(self, "local_queue.refetch_delay.")
        at_least(self.threshold, 0, "local_queue.refetch_delay.threshold")


class LocalQueueOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Node's local queue: lock jobs in batches of a fixed size and serve them from memory."""

    size: int
    """Jobs per fetch, instead of `prefetch`. More is faster, but withholds jobs from others for longer."""
    ttl: Seconds = 300.0
    """Jobs that have waited in memory for this long are returned to the queue."""
    refetch_delay: RefetchDelayOptions | None = None

    def __post_init__(self) -> None:
        at_least(self.size, 1, "local_queue.size")
        check_durations(self, "local_queue.")
        make_nested(self, "refetch_delay", RefetchDelayOptions, "local_queue.refetch_delay")


class NodeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Delays of Graphile Worker for Node. The defaults suit nearly every worker."""

    complete_job_batch_delay: Seconds | None = None
    """How long to collect completed jobs before writing them; by default they are written at once."""
    fail_job_batch_delay: Seconds | None = None
    """The same for failed jobs."""
    get_queue_name_batch_delay: Seconds = 0.05
    """How long to collect `helpers.get_queue_name` lookups before sending them together."""
    min_reset_locked_interval: Seconds = 480.0
    """Shortest time between two runs of the cleanup that clears locks older than four hours."""
    max_reset_locked_interval: Seconds = 600.0
    """Longest time between two such runs."""

    _names: ClassVar[Mapping[str, str]] = {}

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            complete_job_batch_delay: Duration | None = ...,
            fail_job_batch_delay: Duration | None = ...,
            get_queue_name_batch_delay: Duration = ...,
            min_reset_locked_interval: Duration = ...,
            max_reset_locked_interval: Duration = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        check_durations(self)
        if self.min_reset_locked_interval <= 0:
            raise ConfigError("min_reset_locked_interval: must be more than 0 seconds")
        if self.max_reset_locked_interval < self.min_reset_locked_interval:
            raise ConfigError("max_reset_locked_interval: must not be less than min_reset_locked_interval")


class HistoryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to keep of finished jobs, and for how long. `history="all"` sets the mode alone."""

    mode: str = "failed"
    """[Finished jobs to keep](../history-and-results.md#what-to-keep): `none`, `failed` or `all`.

    Tasks and jobs may ask for more.
    """
    retention: Seconds = 7 * DAY
    """How long to keep them, unless the task or the job says."""
    error_retention: Seconds = 7 * DAY
    """How long to keep the errors of failed attempts; 0 keeps none."""
    failed_retention: Seconds | None = None
    """How long permanently failed jobs stay in the queue, before they move to the history.

    By default they stay.
    """

    _names: ClassVar[Mapping[str, str]] = {"mode": "history", "retention": "history_retention"}

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            mode: str = ...,
            retention: Duration = ...,
            error_retention: Duration = ...,
            failed_retention: Duration | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        check_history_mode(self.mode)
        check_durations(self)
        if not 0 < self.retention <= MAX_RETENTION.total_seconds():
            raise ConfigError(f"history_retention: must be more than 0 and at most {MAX_RETENTION.days} days")
        if self.error_retention > MAX_RETENTION.total_seconds():
            raise ConfigError(f"error_retention: must be at most {MAX_RETENTION.days} days")


class RecoveryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How workers find dead ones, and what becomes of their jobs. `recovery=False` only turns it off."""

    enabled: bool = True
    """Send heartbeats and recover jobs of [dead workers](../reliability.md#when-a-worker-dies).

    When off, these jobs stay locked for four hours.
    """
    heartbeat_interval: Seconds = 4.0
    """How often to send a heartbeat; at most a third of `recovery_grace`."""
    grace: Seconds = 12.0
    """How long this worker may miss its heartbeats before others declare it dead and recover its jobs."""
    sweep_interval: Seconds = 5.0
    """How often to sweep for dead workers."""
    delay: Seconds = 0.0
    """How long a recovered job waits before it may run again."""
    max_recoveries: int = 5
    """Fail a job whose worker has died more than this many times; a poison job must not kill all workers."""
    resilient_flag: str = "infrastructure_resilient"
    """The flag of jobs that are left to a silent worker for three times its `recovery_grace`, as in Rust.

    It applies where only heartbeats show that a worker is alive, as behind a pooler. Empty for no such flag.
    """

    _names: ClassVar[Mapping[str, str]] = {
        "enabled": "recovery",
        "grace": "recovery_grace",
        "delay": "recovery_delay",
    }

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            enabled: bool = ...,
            heartbeat_interval: Duration = ...,
            grace: Duration = ...,
            sweep_interval: Duration = ...,
            delay: Duration = ...,
            max_recoveries: int = ...,
            resilient_flag: str = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.enabled, bool):
            raise ConfigError(f"recovery: expected True, False or RecoveryOptions, got {self.enabled!r}")
        check_durations(self)
        at_least(self.max_recoveries, 0, "max_recoveries")
        for name in ("heartbeat_interval", "sweep_interval"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name}: must be more than 0 seconds")
        if self.grace < 3 * self.heartbeat_interval:
            raise ConfigError(
                f"recovery_grace: {self.grace} s is less than three times heartbeat_interval, "
                f"{self.heartbeat_interval} s; one missed heartbeat must not make a worker dead"
            )


GROUPS: dict[str, type[Any]] = {"node": NodeOptions, "history": HistoryOptions, "recovery": RecoveryOptions}
"""Groups whose options have names of their own outside of Python, by the option that has the object."""
PLACES: dict[str, tuple[str, str]] = {
    cls._names.get(field, field): (group, field)
    for group, cls in GROUPS.items()
    for field in cls.__struct_fields__
}
"""Group and field of each of these names."""


def names_outside(cls: type[msgspec.Struct]) -> Mapping[str, str]:
    """The fields that have another name in the configuration file, and that name."""
    return getattr(cls, "_names", {})


def spread(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by name, with the objects of groups as the options that they have."""
    found = {name: value for name, value in values.items() if not _is_group(name, value)}
    for group, value in values.items():
        if not _is_group(group, value):
            continue
        for name, (other, field) in PLACES.items():
            if other == group and found.get(name) is not None:
                raise ConfigError(f"both {group} and {name} are set; give {type(value).__name__} alone")
            if other == group:
                found[name] = getattr(value, field)
    return found


def gathered(values: Mapping[str, Any], owner: Any = None) -> dict[str, Any]:
    """Values by name, with the options of groups as objects; the rest of a group is as in `owner`."""
    found: dict[str, Any] = {}
    fields: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        if name in PLACES and not _is_group(name, value):
            group, field = PLACES[name]
            fields.setdefault(group, {})[field] = value
        else:
            found[name] = value
    for group, changes in fields.items():
        base = found.get(group) or (GROUPS[group]() if owner is None else getattr(owner, group))
        found[group] = msgspec.structs.replace(base, **changes)
    return found


def _is_group(name: str, value: object) -> bool:
    return name in GROUPS and isinstance(value, GROUPS[name])


def make_groups(owner: msgspec.Struct) -> None:
    """Replace what stands for a group, such as `recovery=False`, by its object."""
    for name, cls in GROUPS.items():
        value = getattr(owner, name)
        if isinstance(value, cls):
            continue
        if name not in PLACES:
            raise ConfigError(f"{name}: expected {cls.__name__}, got {value!r}")
        force_setattr(owner, name, cls(**{PLACES[name][1]: value}))


def make_nested(owner: msgspec.Struct, name: str, cls: type[Any], label: str) -> None:
    """Replace a mapping, as in a configuration file, by its options object."""
    value = getattr(owner, name)
    if isinstance(value, Mapping):
        force_setattr(owner, name, from_mapping(cls, value, cls.__struct_fields__, label))
    elif value is not None and not isinstance(value, cls):
        raise ConfigError(f"{label}: expected a mapping or {cls.__name__}, got {value!r}")


def from_mapping(cls: type[T], values: Mapping[str, Any], names: Iterable[str], label: str = "") -> T:
    """An options object. Refuses a name that is not among `names` and suggests the nearest one."""
    for name in values:
        if name not in names:
            from .text import closest

            near = closest(name, names)
            hint = f"; did you mean {near!r}?" if near else f"; known options: {', '.join(names)}"
            where = f" in {label}" if label else ""
            raise ConfigError(f"unknown option {name!r}{where}{hint}")
    try:
        return cls(**values)
    except TypeError as error:
        raise ConfigError(f"{label or 'options'}: {error}") from error


def check_durations(owner: msgspec.Struct, prefix: str = "") -> None:
    """Replace each timedelta by its seconds, and refuse anything that is not a duration."""
    names = names_outside(type(owner))
    for field in durations(type(owner)):
        value = getattr(owner, field)
        if value is None:
            continue
        label = prefix + names.get(field, field)
        if isinstance(value, timedelta):
            value = value.total_seconds()
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{label}: expected seconds or a timedelta, got {value!r}")
        if not 0 <= value < float("inf"):
            raise ConfigError(f"{label}: must be a finite number of seconds, not negative; got {value!r}")
        force_setattr(owner, field, float(value))


@cache
def durations(cls: type[msgspec.Struct]) -> tuple[str, ...]:
    """The fields that are durations, by how their types are written."""
    return tuple(_durations(cls))


def _durations(cls: type[msgspec.Struct]) -> Iterator[str]:
    for field in cls.__struct_fields__:
        if cls.__annotations__[field].startswith("Seconds"):
            yield field


def at_least(value: object, least: int, label: str) -> None:
    """Refuse what is no whole number, or less than this."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{label}: expected a whole number, got {value!r}")
    if value < least:
        raise ConfigError(f"{label}: must be at least {least}, got {value}")


# -- settings of executors, by name --------------------------------------------------------------------------


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


# -- settings of plugins, by name ----------------------------------------------------------------------------


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
