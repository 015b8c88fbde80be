"""Every option of a worker, declared once: its name, type, default, check and trade-off.

The names in the configuration file and the environment, the tables of the documentation, `config` and
Django's `OPTIONS` derive from here. A flag of the command line is declared under the option's name in
`cli/support/parameters.py`. Groups of options are in `option_groups`. Values are checked when the object is
built, and every error names the option.

`WorkerOptionValues` and its relatives are the options of library calls as type checkers and editors see them.
Tests compare them, and every other place that knows options, with the fields. In a call, None means unset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

import msgspec
from msgspec.structs import force_setattr, replace

from ..errors import ConfigError
from .concurrency import MOST_SLOTS, Lane, checked_slots
from .flags import FLAG_OPTIONS, checked_flags
from .option_groups import (
    PLACES,
    Duration,
    HistoryOptions,
    LocalQueueOptions,
    NodeOptions,
    RecoveryOptions,
    Seconds,
    at_least,
    check_durations,
    checked_executors,
    from_mapping,
    gathered,
    make_groups,
    make_nested,
)
from .schema_name import DEFAULT_SCHEMA, SchemaName

SMALLEST_POOL = 2
"""The fewest connections a worker can run with: one for itself and one for its tasks."""
SMALLEST_POOL_FOR_RECOVERY = 4
"""The same for a worker that also listens and sends heartbeats."""

MOST_HOLD = 300.0
"""Seconds; well below the idle timeout of these sessions. Others wait for a batch, and so does vacuum."""


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """All options of a worker. Clients use the first five."""

    connection_string: str | None = None
    """A PostgreSQL [URL](../configuration.md#connection-strings), key=value pairs, or the name of a database.

    Without it: DATABASE_URL, else the PG* variables.
    """
    schema: str = DEFAULT_SCHEMA
    """The PostgreSQL schema with the queue."""
    max_pool_size: int = 10
    """Maximum number of [database connections](../configuration.md#how-many-connections), at least 2.

    They are shared with tasks that use `helpers.query`.
    """
    prepared_statements: bool = True
    """Turn off behind a transaction pooler that does not support prepared statements."""
    use_local_time: bool = False
    """Use this machine's clock instead of the server's for fetching and for default run times."""

    wait_for_database: Seconds | None = None
    """How long to wait at the start for a server that is not up yet. None: 5 s as a process, 0 in `run`."""
    concurrency: int = 1
    """Number of jobs that run at the same time in one process."""
    lanes: dict[str, int] = msgspec.field(default_factory=dict)
    """Slots of [lanes](../lanes.md), in addition to those of `concurrency`, by name: `video = 2`."""
    executors: dict[str, Any] = msgspec.field(default_factory=dict)
    """Settings of [executors](../heavy-work.md#processes) by name: `process.processes = 4`."""
    forbidden_flags: list[str] = msgspec.field(default_factory=list)
    """Skip jobs with one of these [flags](../flags.md). A call takes a function too, as for the next two."""
    accepted_flags: list[str] = msgspec.field(default_factory=list)
    """Take only jobs with one of these flags; an empty list is no rule."""
    flag_allowlist: list[str] | None = None
    """Take only jobs with no other flags than these; an empty list takes those without flags."""
    poll_interval: Seconds = 2.0
    """How often to fetch without a notification. Finds scheduled, retried and returned jobs."""
    task_directory: str = "tasks"
    """Directory, file, module or `module:attribute` with the tasks.

    For `run` without `task_list` and for the command.
    """
    crontab_file: str = "crontab"
    """Crontab file with the recurring jobs. A file that you name must exist, the default need not."""
    prefetch: Seconds = 0.05
    """Seconds of work to lock ahead while tasks are short; 0 locks jobs for free slots only."""
    hold: Seconds = 0.05
    """Seconds for which short jobs run inside the transaction that fetched them, at most 300.

    That is a [held batch](../performance.md#held-batches); 0 locks every job first.
    """
    local_queue: LocalQueueOptions | None = None
    """A local queue of fixed size instead of `prefetch`."""
    node: NodeOptions = NodeOptions()
    """Delays of Graphile Worker for Node."""
    graceful_shutdown_abort_timeout: Seconds = 5.0
    """During shutdown, set `helpers.abort_signal` of running tasks after this long."""
    grace: Seconds = 25.0
    """During shutdown, cancel running tasks and return their jobs to the queue after this long."""
    interrupted_job_retry_delay: Seconds = 0.0
    """How long a job interrupted by shutdown waits before it may run again."""
    job_timeout: Seconds | None = None
    """[Time limit](../time-limits.md) of one attempt, if neither the job nor its task has one."""
    timeout_grace: Seconds = 5.0
    """How long a task may take to end when its time limit has passed; then it leaks."""
    max_leaked_tasks: int = 3
    """Shut down when more [leaked tasks](../time-limits.md#tasks-that-do-not-end) than this still run.

    A supervisor starts another worker.
    """
    handle_signals: bool = True
    """Shut down gracefully on SIGINT, SIGTERM, SIGHUP, SIGUSR2 and SIGABRT."""
    executables_inherit_database: bool = True
    """Pass DATABASE_URL and the PG* variables on to [executable tasks](../tasks.md#executable-files)."""

    history: HistoryOptions = HistoryOptions()
    """What to keep of finished jobs; the mode alone may stand for it."""
    app_version: str | None = None
    """The version of your application, stored with errors: it shows which release brought one."""

    recovery: RecoveryOptions = RecoveryOptions()
    """How dead workers are found, and what becomes of their jobs; False turns it off."""
    statistics: bool = True
    """Record [statistics](../statistics.md) per minute for each task, and samples of the backlog."""

    plugins: list[str] = msgspec.field(default_factory=list)
    """[Plugins](../configuration.md#plugins) of workers and clients by name: `sentry`, `module:attribute`."""
    plugin_options: dict[str, Any] = msgspec.field(default_factory=dict)
    """Options of these plugins: a table for each name, such as `{"sentry": {"capture": "all"}}`."""

    if TYPE_CHECKING:
        # Durations may be a timedelta and groups a mapping, which the fields do not say.
        def __init__(self, **values: Unpack[OptionsWithPlugins]) -> None: ...

    def __post_init__(self) -> None:
        SchemaName(self.schema)
        at_least(self.max_pool_size, 1, "max_pool_size")
        at_least(self.concurrency, 1, "concurrency")
        if self.concurrency > MOST_SLOTS:
            raise ConfigError(f"concurrency: must be at most {MOST_SLOTS}, got {self.concurrency}")
        if self.lanes:
            force_setattr(self, "lanes", checked_slots(self.lanes))
        if self.executors:
            force_setattr(self, "executors", checked_executors(self.executors))
        for name in FLAG_OPTIONS:
            if getattr(self, name):
                force_setattr(self, name, checked_flags(name, getattr(self, name)))
        check_durations(self)
        make_groups(self)
        if self.hold > MOST_HOLD:
            raise ConfigError(f"hold: must be at most {MOST_HOLD:.0f} seconds; others wait for held jobs")
        if self.job_timeout == 0:
            raise ConfigError("job_timeout: must be more than 0 seconds")
        at_least(self.max_leaked_tasks, 0, "max_leaked_tasks")
        if self.plugins or self.plugin_options:
            from .option_groups import checked_names, flat_options

            force_setattr(self, "plugins", checked_names(self.plugins))
            force_setattr(self, "plugin_options", flat_options(self.plugin_options))
        make_nested(self, "local_queue", LocalQueueOptions, "local_queue")
        delay = self.local_queue.refetch_delay if self.local_queue else None
        if delay is not None and delay.duration > self.poll_interval:
            raise ConfigError(
                f"local_queue.refetch_delay.duration: {delay.duration} s is more than poll_interval, "
                f"{self.poll_interval} s"
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
        """Options from names and values. Refuses an unknown name and suggests the nearest one.

        Names are those of the fields, or those of the configuration file: `recovery_grace`.
        """
        return from_mapping(cls, gathered(values), OPTION_NAMES)

    def with_values(self, **values: Unpack[OptionsWithPlugins]) -> Self:
        """A copy with some options changed. Names of the configuration file are taken, too."""
        return replace(self, **gathered(values, self))


OPTION_NAMES = tuple(dict.fromkeys((*WorkerOptions.__struct_fields__, *PLACES)))
"""The names that calls take: the fields, and the options of groups as the configuration file has them."""


class ClientOptionValues(TypedDict, total=False):
    """Options of a client, which every worker has too."""

    connection_string: str | None
    schema: str | None
    max_pool_size: int | None
    prepared_statements: bool | None
    use_local_time: bool | None


CLIENT_OPTIONS = tuple(ClientOptionValues.__annotations__)
"""The options that clients take too."""


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
    node: NodeOptions | None
    graceful_shutdown_abort_timeout: Duration | None
    grace: Duration | None
    interrupted_job_retry_delay: Duration | None
    job_timeout: Duration | None
    timeout_grace: Duration | None
    max_leaked_tasks: int | None
    handle_signals: bool | None
    executables_inherit_database: bool | None
    history: HistoryOptions | str | None
    app_version: str | None
    recovery: RecoveryOptions | bool | None
    statistics: bool | None
    plugin_options: Mapping[str, Any] | None


class OptionsWithPlugins(WorkerOptionValues, total=False):
    """Options of a `WorkerOptions` object. Calls take objects as plugins too, and functions for flags."""

    plugins: Sequence[str] | None
    forbidden_flags: Sequence[str] | None
    accepted_flags: Sequence[str] | None
    flag_allowlist: Sequence[str] | None


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
    return most - 1 if options.recovery.enabled and most >= SMALLEST_POOL_FOR_RECOVERY else most
