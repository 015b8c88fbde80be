"""The options of library calls as type checkers and editors see them.

No module imports this one at run time. A test compares the names with the fields of `WorkerOptions`. In a
call, None means unset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from .lane import Lane
from .options import Duration, LocalQueueOptions


class ClientOptionValues(TypedDict, total=False):
    """Options of a client, which every worker has too."""

    connection_string: str | None
    schema: str | None
    max_pool_size: int | None
    prepared_statements: bool | None
    use_local_time: bool | None


class WorkerOptionValues(ClientOptionValues, total=False):
    """Options of a worker."""

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
