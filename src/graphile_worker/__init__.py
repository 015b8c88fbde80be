"""Graphile Worker for Python: a job queue that needs nothing but PostgreSQL.

Public names are imported on first use, so that a program that only adds jobs does not load the worker.
"""

from typing import TYPE_CHECKING

from ._lazy import export_lazily
from .version import __version__ as __version__

if TYPE_CHECKING:
    from .app import App as App
    from .app.application import Lifespan as Lifespan
    from .awaitable import AwaitableContext as AwaitableContext
    from .client import WorkerUtils as WorkerUtils
    from .client import add_job_adhoc as add_job_adhoc
    from .client import make_worker_utils as make_worker_utils
    from .client import run_migrations as run_migrations
    from .client.following import JobRecord as JobRecord
    from .client.following import JobStatus as JobStatus
    from .client.handle import JobHandle as JobHandle
    from .client.handle import JobReference as JobReference
    from .client.job_stacks import JobStack as JobStack
    from .client.sync_api import make_sync_worker_utils as make_sync_worker_utils
    from .client.sync_connection import SyncConnection as SyncConnection
    from .client.sync_handle import SyncJobHandle as SyncJobHandle
    from .client.sync_handle import SyncJobReference as SyncJobReference
    from .client.sync_worker_utils import SyncWorkerUtils as SyncWorkerUtils
    from .clock import Clock as Clock
    from .cron import CronItem as CronItem
    from .cron import CronItemOptions as CronItemOptions
    from .cron import ParsedCronItem as ParsedCronItem
    from .cron import parse_cron_items as parse_cron_items
    from .cron import parse_crontab as parse_crontab
    from .cron.item import ParsedCronOptions as ParsedCronOptions
    from .directives import GiveUp as GiveUp
    from .directives import RetryIn as RetryIn
    from .directives import Snooze as Snooze
    from .errors import GraphileWorkerError as GraphileWorkerError
    from .failure_handler import FailedJob as FailedJob
    from .history.error_groups import ErrorGroup as ErrorGroup
    from .history.progress import Progress as Progress
    from .history.records import AttemptError as AttemptError
    from .history.records import FinishedJob as FinishedJob
    from .history.records import FinishedState as FinishedState
    from .history.records import HistoryFilter as HistoryFilter
    from .hooks import Events as Events
    from .hooks import FailJob as FailJob
    from .hooks import Hooks as Hooks
    from .hooks import LeaveLocked as LeaveLocked
    from .hooks import Plugin as Plugin
    from .hooks import SkipJob as SkipJob
    from .hooks import WorkerContext as WorkerContext
    from .job import Job as Job
    from .lane import Lane as Lane
    from .limit import Limit as Limit
    from .migrate import MigrationReport as MigrationReport
    from .observability.formatters import JsonFormatter as JsonFormatter
    from .observability.formatters import TextFormatter as TextFormatter
    from .observability.job_context import JobContextFilter as JobContextFilter
    from .observability.log_format import configure_logging as configure_logging
    from .options import LocalQueueOptions as LocalQueueOptions
    from .options import RefetchDelayOptions as RefetchDelayOptions
    from .options import WorkerOptions as WorkerOptions
    from .outcome import Cancelled as Cancelled
    from .outcome import Completed as Completed
    from .outcome import Expired as Expired
    from .outcome import Failed as Failed
    from .outcome import Interrupted as Interrupted
    from .outcome import Outcome as Outcome
    from .outcome import Snoozed as Snoozed
    from .pauses import Pause as Pause
    from .queries.bulk_changes import BulkOptions as BulkOptions
    from .queries.bulk_changes import BulkReport as BulkReport
    from .queries.cancel import CancelReport as CancelReport
    from .queries.inspection import JobCounts as JobCounts
    from .queries.inspection import JobDetails as JobDetails
    from .queries.inspection import JobFilter as JobFilter
    from .queries.inspection import JobOrder as JobOrder
    from .queries.inspection import JobState as JobState
    from .queries.inspection import QueueSummary as QueueSummary
    from .queries.inspection import Statistics as Statistics
    from .queries.limits import LimitSummary as LimitSummary
    from .queries.maintenance import CleanupReport as CleanupReport
    from .queries.maintenance import CleanupTask as CleanupTask
    from .queries.requests import Deploy as Deploy
    from .queries.schedules import RegisteredSchedule as RegisteredSchedule
    from .queries.schedules import Schedule as Schedule
    from .queries.schedules import ScheduleRun as ScheduleRun
    from .queries.statistics import BacklogSample as BacklogSample
    from .queries.statistics import StatisticsGroup as StatisticsGroup
    from .queries.statistics import StatisticsList as StatisticsList
    from .queries.statistics import TaskStatistics as TaskStatistics
    from .recovery.blocked_loop import BlockedLoop as BlockedLoop
    from .recovery.describe import LaneDescription as LaneDescription
    from .recovery.pool_state import ExecutorPlace as ExecutorPlace
    from .recovery.sweep import RecoveredWorker as RecoveredWorker
    from .recovery.sweep import SweepReport as SweepReport
    from .recovery.worker_rows import RunningJob as RunningJob
    from .recovery.worker_rows import WorkerList as WorkerList
    from .recovery.worker_rows import WorkerSummary as WorkerSummary
    from .retry import Retry as Retry
    from .runner import run as run
    from .runner import run_once as run_once
    from .runner.runner import Runner as Runner
    from .service.serve import serve as serve
    from .spec import JobKeyMode as JobKeyMode
    from .spec import JobOptions as JobOptions
    from .spec import JobSpec as JobSpec
    from .tasks import AbortSignal as AbortSignal
    from .tasks import Depends as Depends
    from .tasks import Extensions as Extensions
    from .tasks import JobHelpers as JobHelpers
    from .tasks import SyncHelpers as SyncHelpers
    from .tasks import Task as Task
    from .tasks import get_current_helpers as get_current_helpers
    from .tasks import get_current_job as get_current_job
    from .tasks import task as task
    from .tasks.registry import TaskList as TaskList
    from .tasks.task import TaskOptions as TaskOptions
    from .unique import Unique as Unique
    from .worker.plan import FlagSource as FlagSource

export_lazily(
    __name__,
    {
        "app": "App",
        "app.application": "Lifespan",
        "awaitable": "AwaitableContext",
        "client": "WorkerUtils add_job_adhoc make_worker_utils run_migrations",
        "client.following": "JobRecord JobStatus",
        "client.handle": "JobHandle JobReference",
        "client.job_stacks": "JobStack",
        "client.sync_api": "make_sync_worker_utils",
        "client.sync_connection": "SyncConnection",
        "client.sync_handle": "SyncJobHandle SyncJobReference",
        "client.sync_worker_utils": "SyncWorkerUtils",
        "clock": "Clock",
        "cron": "CronItem CronItemOptions ParsedCronItem parse_cron_items parse_crontab",
        "cron.item": "ParsedCronOptions",
        "directives": "GiveUp RetryIn Snooze",
        "errors": "GraphileWorkerError",
        "failure_handler": "FailedJob",
        "history.error_groups": "ErrorGroup",
        "history.progress": "Progress",
        "history.records": "AttemptError FinishedState HistoryFilter FinishedJob",
        "hooks": "Events FailJob Hooks LeaveLocked Plugin SkipJob WorkerContext",
        "job": "Job",
        "lane": "Lane",
        "limit": "Limit",
        "migrate": "MigrationReport",
        "observability.formatters": "JsonFormatter TextFormatter",
        "observability.job_context": "JobContextFilter",
        "observability.log_format": "configure_logging",
        "options": "LocalQueueOptions RefetchDelayOptions WorkerOptions",
        "outcome": "Cancelled Completed Expired Failed Interrupted Outcome Snoozed",
        "pauses": "Pause",
        "queries.bulk_changes": "BulkOptions BulkReport",
        "queries.statistics": "BacklogSample StatisticsGroup StatisticsList TaskStatistics",
        "queries.inspection": "JobCounts JobDetails JobFilter JobOrder JobState QueueSummary Statistics",
        "queries.limits": "LimitSummary",
        "queries.maintenance": "CleanupReport CleanupTask",
        "queries.requests": "Deploy",
        "queries.schedules": "RegisteredSchedule Schedule ScheduleRun",
        "recovery.blocked_loop": "BlockedLoop",
        "queries.cancel": "CancelReport",
        "recovery.sweep": "RecoveredWorker SweepReport",
        "recovery.describe": "LaneDescription",
        "recovery.pool_state": "ExecutorPlace",
        "recovery.worker_rows": "RunningJob WorkerList WorkerSummary",
        "retry": "Retry",
        "runner": "run run_once",
        "runner.runner": "Runner",
        "service.serve": "serve",
        "spec": "JobKeyMode JobOptions JobSpec",
        "tasks": "AbortSignal Depends Extensions JobHelpers SyncHelpers Task "
        "get_current_helpers get_current_job task",
        "tasks.registry": "TaskList",
        "tasks.task": "TaskOptions",
        "unique": "Unique",
        "worker.plan": "FlagSource",
    },
    "__version__",
)
