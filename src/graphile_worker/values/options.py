"""Every option of a worker, with its default and its trade-off.

Durations are float seconds; a `timedelta` is accepted too. Values are checked when the object is built, and
every error names the option. Reading options from files and the environment is the task of `config/`.

`WorkerOptionValues` and its relatives are the options of library calls as type checkers and editors see them.
A test compares their names with the fields of `WorkerOptions`. In a call, None means unset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar, Unpack

import msgspec
from msgspec.structs import force_setattr, replace

from ..errors import ConfigError
from .component_options import checked_executors
from .concurrency import MOST_SLOTS, Lane, checked_slots
from .retention import MAX_RETENTION, check_history_mode
from .schema_name import DEFAULT_SCHEMA, SchemaName

Duration = float | timedelta
T = TypeVar("T", bound=msgspec.Struct)

DAY = 86_400.0
SMALLEST_POOL = 2
"""The fewest connections a worker can run with: one for itself and one for its tasks."""
SMALLEST_POOL_FOR_RECOVERY = 4
"""The same for a worker that also listens and sends heartbeats."""

MOST_HOLD = 300.0
"""Seconds; well below the idle timeout of these sessions. Others wait for a batch, and so does vacuum."""


class RefetchDelayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Pause after a fetch that found few jobs, so that many idle workers do not overload the server."""

    duration: float
    """Length of the pause, multiplied by a random factor from 0.5 to 1.5; at most the poll interval."""
    threshold: int = 0
    """Pause only if the last fetch returned at most this many jobs."""
    max_abort_threshold: int | None = None
    """New jobs that end the pause early: a random share of this number (default: 5 × size)."""

    def __post_init__(self) -> None:
        _seconds(self, "duration", "local_queue.refetch_delay.duration")
        _at_least(self.threshold, 0, "local_queue.refetch_delay.threshold")


class LocalQueueOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Node's local queue: lock jobs in batches of a fixed size and serve them from memory."""

    size: int
    """Jobs per fetch. More is faster, but withholds jobs from other workers for longer."""
    ttl: float = 300.0
    """Jobs that have waited in memory for this long are returned to the queue."""
    refetch_delay: RefetchDelayOptions | None = None

    def __post_init__(self) -> None:
        _at_least(self.size, 1, "local_queue.size")
        _seconds(self, "ttl", "local_queue.ttl")
        _nested(self, "refetch_delay", RefetchDelayOptions, "local_queue.refetch_delay")


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """All options of a worker. Clients use the first five."""

    connection_string: str | None = None
    """A PostgreSQL URL or key=value string. Without it: DATABASE_URL, else the PG* variables."""
    schema: str = DEFAULT_SCHEMA
    """The PostgreSQL schema with the queue."""
    max_pool_size: int = 10
    """Maximum number of database connections, shared with tasks that use `helpers.query`. At least 2."""
    prepared_statements: bool = True
    """Turn off behind a transaction pooler that does not support prepared statements."""
    use_local_time: bool = False
    """Use this machine's clock instead of the server's for fetching and for default run times."""

    wait_for_database: float | None = None
    """How long to wait at the start for a server that is not up yet. None: 5 s as a process, 0 in `run`."""
    concurrency: int = 1
    """Number of jobs that run at the same time in one process."""
    lanes: dict[str, int] = msgspec.field(default_factory=dict)
    """Slots of lanes, beside those of `concurrency`, by name: `video = 2`. See [lanes](../lanes.md)."""
    executors: dict[str, Any] = msgspec.field(default_factory=dict)
    """Settings of executors by name: `process.processes = 4`. See [heavy work](../heavy-work.md)."""
    poll_interval: float = 2.0
    """How often to fetch without a notification. Finds scheduled, retried and returned jobs."""
    task_directory: str = "tasks"
    """Directory (or file, or module) with the tasks, for `run` without `task_list` and for the command."""
    crontab_file: str = "crontab"
    """Crontab file with the recurring jobs; it need not exist."""
    prefetch: float = 0.05
    """Seconds of work to lock ahead while tasks are short; 0 locks jobs for free slots only."""
    hold: float = 0.05
    """Seconds for which short jobs run inside the transaction that fetched them; 0 locks every job first."""
    local_queue: LocalQueueOptions | None = None
    """A local queue of fixed size instead of `prefetch`."""
    complete_job_batch_delay: float | None = None
    """How long to collect completed jobs before writing them; None writes as soon as possible."""
    fail_job_batch_delay: float | None = None
    """The same for failed jobs."""
    get_queue_name_batch_delay: float = 0.05
    """How long to collect `helpers.get_queue_name` lookups before sending them together."""
    min_reset_locked_interval: float = 480.0
    """Shortest time between two runs of the cleanup that clears locks older than four hours."""
    max_reset_locked_interval: float = 600.0
    """Longest time between two such runs."""
    graceful_shutdown_abort_timeout: float = 5.0
    """During shutdown, set `helpers.abort_signal` of running tasks after this long."""
    grace: float = 25.0
    """During shutdown, cancel running tasks and return their jobs to the queue after this long."""
    interrupted_job_retry_delay: float = 0.0
    """How long a job interrupted by shutdown waits before it may run again."""
    job_timeout: float | None = None
    """Time limit of one attempt, for jobs that have none of their own and whose task has none."""
    timeout_grace: float = 5.0
    """How long a task may take to end when its time limit has passed; then it leaks."""
    max_leaked_tasks: int = 3
    """Shut down when more leaked tasks than this still run; a supervisor starts another."""
    handle_signals: bool = True
    """Shut down gracefully on SIGINT, SIGTERM, SIGHUP, SIGUSR2 and SIGABRT."""
    executables_inherit_database: bool = True
    """Pass the worker's DATABASE_URL and PG* variables to executable tasks."""

    history: str = "failed"
    """Finished jobs to keep in the history: `none`, `failed` or `all`. Tasks and jobs may ask for more."""
    history_retention: float = 7 * DAY
    """How long to keep them, unless the task or the job says."""
    error_retention: float = 7 * DAY
    """How long to keep the errors of failed attempts; 0 keeps none."""
    failed_retention: float | None = None
    """How long permanently failed jobs stay in the queue; then they move to the history. None keeps them."""
    app_version: str | None = None
    """The version of your application, stored with errors: it shows which release brought one."""

    recovery: bool = True
    """Send heartbeats and recover jobs of dead workers. When off, these jobs stay locked for four hours."""
    heartbeat_interval: float = 4.0
    """How often to send a heartbeat; at most a third of `recovery_grace`."""
    recovery_grace: float = 12.0
    """How long this worker may miss its heartbeats before others declare it dead and recover its jobs."""
    sweep_interval: float = 5.0
    """How often to sweep for dead workers."""
    recovery_delay: float = 0.0
    """How long a recovered job waits before it may run again."""
    max_recoveries: int = 5
    """Fail a job whose worker has died more than this many times; a poison job must not kill all workers."""
    statistics: bool = True
    """Record statistics per minute for each task, and samples of the backlog. `stats --since` shows them."""

    plugins: list[str] = msgspec.field(default_factory=list)
    """Plugins of workers and clients by name: `sentry`, or `module:attribute`."""
    plugin_options: dict[str, Any] = msgspec.field(default_factory=dict)
    """Options of these plugins: a table for each name, such as `{"sentry": {"capture": "all"}}`."""

    if TYPE_CHECKING:
        # Durations may be a timedelta and groups a mapping, which the fields do not say.
        def __init__(self, **values: Unpack[OptionsWithPlugins]) -> None: ...

    def __post_init__(self) -> None:
        SchemaName(self.schema)
        _at_least(self.max_pool_size, 1, "max_pool_size")
        _at_least(self.concurrency, 1, "concurrency")
        if self.concurrency > MOST_SLOTS:
            raise ConfigError(f"concurrency: must be at most {MOST_SLOTS}, got {self.concurrency}")
        if self.lanes:
            force_setattr(self, "lanes", checked_slots(self.lanes))
        if self.executors:
            force_setattr(self, "executors", checked_executors(self.executors))
        for name in _DURATIONS:
            _seconds(self, name, name)
        if self.min_reset_locked_interval <= 0:
            raise ConfigError("min_reset_locked_interval: must be more than 0 seconds")
        if self.max_reset_locked_interval < self.min_reset_locked_interval:
            raise ConfigError("max_reset_locked_interval: must not be less than min_reset_locked_interval")
        if self.hold > MOST_HOLD:
            raise ConfigError(f"hold: must be at most {MOST_HOLD:.0f} seconds; others wait for held jobs")
        if self.job_timeout == 0:
            raise ConfigError("job_timeout: must be more than 0 seconds")
        _at_least(self.max_leaked_tasks, 0, "max_leaked_tasks")
        self._check_recovery()
        check_history_mode(self.history)
        if not 0 < self.history_retention <= MAX_RETENTION.total_seconds():
            raise ConfigError(f"history_retention: must be more than 0 and at most {MAX_RETENTION.days} days")
        if self.error_retention > MAX_RETENTION.total_seconds():
            raise ConfigError(f"error_retention: must be at most {MAX_RETENTION.days} days")
        if self.plugins or self.plugin_options:
            from .component_options import checked_names, flat_options

            force_setattr(self, "plugins", checked_names(self.plugins))
            force_setattr(self, "plugin_options", flat_options(self.plugin_options))
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
                f"{self.heartbeat_interval} s; one missed heartbeat must not make a worker dead"
            )

    def __repr__(self) -> str:
        # The connection string may hold a password.
        shown = (name for name in self.__struct_fields__ if name != "connection_string")
        return f"WorkerOptions({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    @property
    def schema_name(self) -> SchemaName:
        """The schema as a checked value for SQL."""
        return SchemaName(self.schema)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Options from names and values. Refuses an unknown name and suggests the nearest one."""
        return _from_mapping(cls, values, "")

    def with_values(self, **values: Unpack[OptionsWithPlugins]) -> Self:
        """A copy with some options changed."""
        return replace(self, **values)


CLIENT_OPTIONS = ("connection_string", "schema", "max_pool_size", "prepared_statements", "use_local_time")
"""The options that clients take too."""
_DURATIONS = (
    "wait_for_database",
    "poll_interval",
    "prefetch",
    "hold",
    "complete_job_batch_delay",
    "fail_job_batch_delay",
    "get_queue_name_batch_delay",
    "min_reset_locked_interval",
    "max_reset_locked_interval",
    "graceful_shutdown_abort_timeout",
    "grace",
    "interrupted_job_retry_delay",
    "job_timeout",
    "timeout_grace",
    "history_retention",
    "error_retention",
    "failed_retention",
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
    """Replace a mapping, as in a configuration file, by its options object."""
    value = getattr(owner, name)
    if isinstance(value, Mapping):
        force_setattr(owner, name, _from_mapping(cls, value, label))
    elif value is not None and not isinstance(value, cls):
        raise ConfigError(f"{label}: expected a mapping or {cls.__name__}, got {value!r}")


def _seconds(owner: msgspec.Struct, name: str, label: str) -> None:
    """Replace a timedelta by its seconds, and refuse anything that is not a duration."""
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


class ClientOptionValues(TypedDict, total=False):
    """Options of a client, which every worker has too."""

    connection_string: str | None
    schema: str | None
    max_pool_size: int | None
    prepared_statements: bool | None
    use_local_time: bool | None


class WorkerOptionValues(ClientOptionValues, total=False):
    """Options of a worker."""

    wait_for_database: Duration | None
    concurrency: int | None
    lanes: Mapping[str, int] | Sequence[Lane] | None
    executors: Mapping[str, Any] | None
    poll_interval: Duration | None
    task_directory: str | None
    crontab_file: str | None
    prefetch: Duration | None
    hold: Duration | None
    local_queue: LocalQueueOptions | Mapping[str, Any] | None
    complete_job_batch_delay: Duration | None
    fail_job_batch_delay: Duration | None
    get_queue_name_batch_delay: Duration | None
    min_reset_locked_interval: Duration | None
    max_reset_locked_interval: Duration | None
    graceful_shutdown_abort_timeout: Duration | None
    grace: Duration | None
    interrupted_job_retry_delay: Duration | None
    job_timeout: Duration | None
    timeout_grace: Duration | None
    max_leaked_tasks: int | None
    handle_signals: bool | None
    executables_inherit_database: bool | None
    history: str | None
    history_retention: Duration | None
    error_retention: Duration | None
    failed_retention: Duration | None
    app_version: str | None
    recovery: bool | None
    heartbeat_interval: Duration | None
    recovery_grace: Duration | None
    sweep_interval: Duration | None
    recovery_delay: Duration | None
    max_recoveries: int | None
    statistics: bool | None
    plugin_options: Mapping[str, Any] | None


class OptionsWithPlugins(WorkerOptionValues, total=False):
    """Options of a `WorkerOptions` object. The argument `plugins` of calls takes objects too."""

    plugins: Sequence[str] | None


def pool_size(options: WorkerOptions) -> int:
    """The size of a worker's connection pool; the heartbeat has its own connection.

    With two or three connections there is no heartbeat, and with two the worker polls instead of listening;
    `recovery.service` and `worker.pool` log that.
    """
    most = options.max_pool_size
    if most < SMALLEST_POOL:
        raise ConfigError(
            f"max_pool_size: a worker needs at least {SMALLEST_POOL} database connections, one for itself "
            f"and one for its tasks; got {most}"
        )
    return most - 1 if options.recovery and most >= SMALLEST_POOL_FOR_RECOVERY else most
