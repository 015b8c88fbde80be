"""Every knob of a worker, with its default and what it trades.

Durations are float seconds; a `timedelta` is accepted wherever a duration is. Values are checked when the
object is built and every message names the option. Where options come from is `config/`'s business.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Self, TypeVar

import msgspec
from msgspec.structs import force_setattr, replace

from .errors import ConfigError
from .schema_name import DEFAULT_SCHEMA, SchemaName

Duration = float | timedelta
T = TypeVar("T", bound=msgspec.Struct)

SMALLEST_POOL = 2
"""Connections without which a worker cannot work: one for itself and one for its tasks."""
SMALLEST_POOL_FOR_RECOVERY = 4
"""The same if it listens and sends heartbeats, too."""


class RefetchDelayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Rest after a fetch that found little, so that many idle workers do not hammer the server."""

    duration: float
    """How long to rest, multiplied by a random factor from 0.5 to 1.5; at most the poll interval."""
    threshold: int = 0
    """Rest only if the last fetch brought at most this many jobs."""
    max_abort_threshold: int | None = None
    """Jobs announced meanwhile that end the rest early: a random share of this (default: 5 × size)."""

    def __post_init__(self) -> None:
        _seconds(self, "duration", "local_queue.refetch_delay.duration")
        _at_least(self.threshold, 0, "local_queue.refetch_delay.threshold")


class LocalQueueOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Node's local queue: lock jobs in batches of a fixed size and hand them out from memory."""

    size: int
    """Jobs locked by one fetch; more is faster and keeps jobs from other workers for longer."""
    ttl: float = 300.0
    """Jobs that waited here so long go back to the database."""
    refetch_delay: RefetchDelayOptions | None = None

    def __post_init__(self) -> None:
        _at_least(self.size, 1, "local_queue.size")
        _seconds(self, "ttl", "local_queue.ttl")
        _nested(self, "refetch_delay", RefetchDelayOptions, "local_queue.refetch_delay")


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """All options of a worker; those of the first group also serve clients that only add jobs."""

    connection_string: str | None = None
    """A PostgreSQL URL or key=value string. Without it: DATABASE_URL, else the PG* variables."""
    schema: str = DEFAULT_SCHEMA
    """The database schema that holds the queue."""
    max_pool_size: int = 10
    """Database connections at most; tasks that use `helpers.query` share them. A worker needs at least 2."""
    prepared_statements: bool = True
    """Switch off behind a transaction pooler that cannot keep prepared statements."""
    use_local_time: bool = False
    """Take this machine's clock instead of the server's for fetching and default run times."""

    concurrency: int = 1
    """Jobs that run at the same time in one process."""
    poll_interval: float = 2.0
    """How often to look for jobs that nobody announced: delayed ones, and those of other workers."""
    task_directory: str = "tasks"
    """Folder (or file) with the tasks, for `run` without `task_list` and for the command line."""
    crontab_file: str = "crontab"
    """File with recurring jobs; may be missing."""
    prefetch: float = 0.05
    """Seconds of work locked ahead of the free slots while tasks are short; 0 locks only for free slots."""
    local_queue: LocalQueueOptions | None = None
    """A local queue of fixed size in place of `prefetch`."""
    complete_job_batch_delay: float | None = None
    """Collect completed jobs for so long before writing; None writes at once what has gathered."""
    fail_job_batch_delay: float | None = None
    """The same for failed jobs."""
    get_queue_name_batch_delay: float = 0.05
    """Gather `helpers.get_queue_name` look-ups for so long."""
    min_reset_locked_interval: float = 480.0
    """Locks older than four hours are cleared from time to time: at the soonest after this long."""
    max_reset_locked_interval: float = 600.0
    """And at the latest after this long."""
    graceful_shutdown_abort_timeout: float = 5.0
    """After a stop was asked for, running tasks see `helpers.abort_signal` set this much later."""
    grace: float = 25.0
    """After a stop was asked for, running tasks are cancelled this much later and their jobs given back."""
    interrupted_job_retry_delay: float = 0.0
    """How long jobs whose tasks a stop interrupted wait before they run again."""
    handle_signals: bool = True
    """Stop gracefully on SIGINT, SIGTERM, SIGHUP, SIGUSR2 and SIGABRT."""
    executables_inherit_database: bool = True
    """Executable tasks see DATABASE_URL and the PG* variables of the worker; off leaves them out."""

    recovery: bool = True
    """Show that this worker lives, and take the jobs of those that died; else they stay locked for hours."""
    heartbeat_interval: float = 4.0
    """How often this worker shows that it lives; at most a third of `recovery_grace`."""
    recovery_grace: float = 12.0
    """How long this worker may be out of reach of the database before others take its jobs."""
    sweep_interval: float = 5.0
    """How often to look for workers that are out of reach."""
    recovery_delay: float = 0.0
    """How long jobs taken from a dead worker wait before they run again."""
    max_recoveries: int = 5
    """A job whose worker died more often than this fails, lest one that kills its worker kill all of them."""

    def __post_init__(self) -> None:
        SchemaName(self.schema)
        _at_least(self.max_pool_size, 1, "max_pool_size")
        _at_least(self.concurrency, 1, "concurrency")
        for name in _DURATIONS:
            _seconds(self, name, name)
        if self.min_reset_locked_interval <= 0:
            raise ConfigError("min_reset_locked_interval: must be more than 0 seconds")
        if self.max_reset_locked_interval < self.min_reset_locked_interval:
            raise ConfigError("max_reset_locked_interval: must not be less than min_reset_locked_interval")
        self._check_recovery()
        _nested(self, "local_queue", LocalQueueOptions, "local_queue")
        delay = self.local_queue.refetch_delay if self.local_queue else None
        if delay is not None and delay.duration > self.poll_interval:
            raise ConfigError(
                f"local_queue.refetch_delay.duration: {delay.duration} s is more than poll_interval, "
                f"{self.poll_interval} s"
            )

    def _check_recovery(self) -> None:
        _at_least(self.max_recoveries, 0, "max_recoveries")
        for name in ("heartbeat_interval", "sweep_interval"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name}: must be more than 0 seconds")
        if self.recovery_grace < 3 * self.heartbeat_interval:
            raise ConfigError(
                f"recovery_grace: {self.recovery_grace} s is less than three times heartbeat_interval, "
                f"{self.heartbeat_interval} s; a worker needs some heartbeats to show that it lives"
            )

    def __repr__(self) -> str:
        # Without the connection string, which may hold a password.
        shown = (name for name in self.__struct_fields__ if name != "connection_string")
        return f"WorkerOptions({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    @property
    def schema_name(self) -> SchemaName:
        """The schema as the value that SQL is made with."""
        return SchemaName(self.schema)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Options from names and values; unknown names are refused with the nearest known one."""
        return _from_mapping(cls, values, "")

    def with_values(self, **values: Any) -> Self:
        """A copy with some options changed."""
        return replace(self, **values)


_DURATIONS = (
    "poll_interval",
    "prefetch",
    "complete_job_batch_delay",
    "fail_job_batch_delay",
    "get_queue_name_batch_delay",
    "min_reset_locked_interval",
    "max_reset_locked_interval",
    "graceful_shutdown_abort_timeout",
    "grace",
    "interrupted_job_retry_delay",
    "heartbeat_interval",
    "recovery_grace",
    "sweep_interval",
    "recovery_delay",
)


def _from_mapping(cls: type[T], values: Mapping[str, Any], prefix: str) -> T:
    names = cls.__struct_fields__
    for name in values:
        if name not in names:
            from .text import closest

            near = closest(name, names)
            hint = f"; did you mean {near!r}?" if near else f"; known options: {', '.join(names)}"
            where = f" in {prefix}" if prefix else ""
            raise ConfigError(f"unknown option {name!r}{where}{hint}")
    try:
        return cls(**values)
    except TypeError as error:
        raise ConfigError(f"{prefix or 'options'}: {error}") from error


def _nested(owner: msgspec.Struct, name: str, cls: type[Any], label: str) -> None:
    """Turn a mapping, as configuration files give it, into its options object in place."""
    value = getattr(owner, name)
    if isinstance(value, Mapping):
        force_setattr(owner, name, _from_mapping(cls, value, label))
    elif value is not None and not isinstance(value, cls):
        raise ConfigError(f"{label}: expected a mapping or {cls.__name__}, got {value!r}")


def _seconds(owner: msgspec.Struct, name: str, label: str) -> None:
    """Turn a timedelta into seconds in place and refuse what is not a duration."""
    value = getattr(owner, name)
    if value is None:
        return
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{label}: expected seconds or a timedelta, got {value!r}")
    if not 0 <= value < float("inf"):
        raise ConfigError(f"{label}: must be a finite number of seconds, not negative; got {value!r}")
    force_setattr(owner, name, float(value))


def _at_least(value: object, least: int, label: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{label}: expected a whole number, got {value!r}")
    if value < least:
        raise ConfigError(f"{label}: must be at least {least}, got {value}")
