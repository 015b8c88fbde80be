"""Graphile Worker for Python: a job queue that needs nothing but PostgreSQL.

Public names are imported on first use, so that a program that only adds jobs does not load the worker.
"""

from typing import TYPE_CHECKING

from .values import __version__ as __version__
from .values.imports import export_lazily

if TYPE_CHECKING:
    from .app import App as App
    from .app.application import Lifespan as Lifespan
    from .client import WorkerUtils as WorkerUtils
    from .client import add_job_adhoc as add_job_adhoc
    from .client import make_worker_utils as make_worker_utils
    from .client import run_migrations as run_migrations
    from .client.background import SyncConnection as SyncConnection
    from .client.handle import JobHandle as JobHandle
    from .client.handle import JobReference as JobReference
    from .client.job_status import JobRecord as JobRecord
    from .client.job_status import JobStack as JobStack
    from .client.job_status import JobStatus as JobStatus
    from .client.sync_api import make_sync_worker_utils as make_sync_worker_utils
    from .client.sync_handle import SyncJobHandle as SyncJobHandle
    from .client.sync_handle import SyncJobReference as SyncJobReference
    from .client.sync_worker_utils import SyncWorkerUtils as SyncWorkerUtils
    from .config.calls import AwaitableContext as AwaitableContext
    from .cron import CronItem as CronItem
    from .cron import CronItemOptions as CronItemOptions
    from .cron import ParsedCronItem as ParsedCronItem
    from .cron import parse_cron_items as parse_cron_items
    from .cron import parse_crontab as parse_crontab
    from .cron.item import ParsedCronOptions as ParsedCronOptions
    from .database.migrations import MigrationReport as MigrationReport
    from .database.statements.bulk_changes import BulkOptions as BulkOptions
    from .database.statements.bulk_changes import BulkReport as BulkReport
    from .database.statements.cleanup import CleanupReport as CleanupReport
    from .database.statements.cleanup import CleanupTask as CleanupTask
    from .database.statements.control import Deploy as Deploy
    from .database.statements.inspection import JobCounts as JobCounts
    from .database.statements.inspection import JobDetails as JobDetails
    from .database.statements.inspection import JobFilter as JobFilter
    from .database.statements.inspection import JobOrder as JobOrder
    from .database.statements.inspection import JobState as JobState
    from .database.statements.inspection import QueueSummary as QueueSummary
    from .database.statements.inspection import Statistics as Statistics
    from .database.statements.limits import LimitSummary as LimitSummary
    from .database.statements.manage_jobs import CancelReport as CancelReport
    from .database.statements.schedules import RegisteredSchedule as RegisteredSchedule
    from .database.statements.schedules import Schedule as Schedule
    from .database.statements.schedules import ScheduleRun as ScheduleRun
    from .errors import GraphileWorkerError as GraphileWorkerError
    from .history.error_groups import ErrorGroup as ErrorGroup
    from .history.records import AttemptError as AttemptError
    from .history.records import FinishedJob as FinishedJob
    from .history.records import FinishedState as FinishedState
    from .history.records import HistoryFilter as HistoryFilter
    from .history.statistics import BacklogSample as BacklogSample
    from .history.statistics import StatisticsGroup as StatisticsGroup
    from .history.statistics import StatisticsList as StatisticsList
    from .history.statistics import TaskStatistics as TaskStatistics
    from .history.task_reports import Progress as Progress
    from .hooks import Events as Events
    from .hooks import FailJob as FailJob
    from .hooks import Hooks as Hooks
    from .hooks import LeaveLocked as LeaveLocked
    from .hooks import Plugin as Plugin
    from .hooks import SkipJob as SkipJob
    from .hooks import WorkerContext as WorkerContext
    from .logs.configure import configure_logging as configure_logging
    from .logs.formatters import JsonFormatter as JsonFormatter
    from .logs.formatters import TextFormatter as TextFormatter
    from .logs.job_context import JobContextFilter as JobContextFilter
    from .process.serve import serve as serve
    from .recovery.registry.pool_state import BlockedLoop as BlockedLoop
    from .recovery.registry.pool_state import ExecutorPlace as ExecutorPlace
    from .recovery.registry.pool_state import LaneDescription as LaneDescription
    from .recovery.registry.workers import RunningJob as RunningJob
    from .recovery.registry.workers import WorkerList as WorkerList
    from .recovery.registry.workers import WorkerSummary as WorkerSummary
    from .recovery.sweep import RecoveredWorker as RecoveredWorker
    from .recovery.sweep import SweepReport as SweepReport
    from .runner import run as run
    from .runner import run_once as run_once
    from .runner.runner import Runner as Runner
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
    from .values.clock import Clock as Clock
    from .values.concurrency import Lane as Lane
    from .values.concurrency import Limit as Limit
    from .values.job import Job as Job
    from .values.job import Pause as Pause
    from .values.options import LocalQueueOptions as LocalQueueOptions
    from .values.options import RefetchDelayOptions as RefetchDelayOptions
    from .values.options import WorkerOptions as WorkerOptions
    from .values.outcome import Cancelled as Cancelled
    from .values.outcome import Completed as Completed
    from .values.outcome import Expired as Expired
    from .values.outcome import Failed as Failed
    from .values.outcome import FailedJob as FailedJob
    from .values.outcome import Interrupted as Interrupted
    from .values.outcome import Outcome as Outcome
    from .values.outcome import Snoozed as Snoozed
    from .values.retry import GiveUp as GiveUp
    from .values.retry import Retry as Retry
    from .values.retry import RetryIn as RetryIn
    from .values.retry import Snooze as Snooze
    from .values.spec import JobKeyMode as JobKeyMode
    from .values.spec import JobOptions as JobOptions
    from .values.spec import JobSpec as JobSpec
    from .values.spec import Unique as Unique
    from .worker.plan import FlagSource as FlagSource

export_lazily(
    __name__,
    {
        "app": "App",
        "app.application": "Lifespan",
        "client": "WorkerUtils add_job_adhoc make_worker_utils run_migrations",
        "client.background": "SyncConnection",
        "client.handle": "JobHandle JobReference",
        "client.job_status": "JobRecord JobStack JobStatus",
        "client.sync_api": "make_sync_worker_utils",
        "client.sync_handle": "SyncJobHandle SyncJobReference",
        "client.sync_worker_utils": "SyncWorkerUtils",
        "config.calls": "AwaitableContext",
        "cron": "CronItem CronItemOptions ParsedCronItem parse_cron_items parse_crontab",
        "cron.item": "ParsedCronOptions",
        "database.migrations": "MigrationReport",
        "database.statements.bulk_changes": "BulkOptions BulkReport",
        "database.statements.cleanup": "CleanupReport CleanupTask",
        "database.statements.control": "Deploy",
        "database.statements.inspection": "JobCounts JobDetails JobFilter JobOrder JobState QueueSummary "
        "Statistics",
        "database.statements.limits": "LimitSummary",
        "database.statements.manage_jobs": "CancelReport",
        "database.statements.schedules": "RegisteredSchedule Schedule ScheduleRun",
        "errors": "GraphileWorkerError",
        "history.error_groups": "ErrorGroup",
        "history.records": "AttemptError FinishedJob FinishedState HistoryFilter",
        "history.statistics": "BacklogSample StatisticsGroup StatisticsList TaskStatistics",
        "history.task_reports": "Progress",
        "hooks": "Events FailJob Hooks LeaveLocked Plugin SkipJob WorkerContext",
        "logs.configure": "configure_logging",
        "logs.formatters": "JsonFormatter TextFormatter",
        "logs.job_context": "JobContextFilter",
        "process.serve": "serve",
        "recovery.registry.pool_state": "BlockedLoop ExecutorPlace LaneDescription",
        "recovery.registry.workers": "RunningJob WorkerList WorkerSummary",
        "recovery.sweep": "RecoveredWorker SweepReport",
        "runner": "run run_once",
        "runner.runner": "Runner",
        "tasks": "AbortSignal Depends Extensions JobHelpers SyncHelpers Task get_current_helpers "
        "get_current_job task",
        "tasks.registry": "TaskList",
        "tasks.task": "TaskOptions",
        "values.clock": "Clock",
        "values.concurrency": "Lane Limit",
        "values.job": "Job Pause",
        "values.options": "LocalQueueOptions RefetchDelayOptions WorkerOptions",
        "values.outcome": "Cancelled Completed Expired Failed FailedJob Interrupted Outcome Snoozed",
        "values.retry": "GiveUp Retry RetryIn Snooze",
        "values.spec": "JobKeyMode JobOptions JobSpec Unique",
        "worker.plan": "FlagSource",
    },
    "__version__",
)
