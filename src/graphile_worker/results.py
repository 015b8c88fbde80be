"""What calls return: states of jobs, rows about jobs, queues and workers, and reports about changes.

Names are imported on first use. No module of the package imports this one: it is for programs.
"""

from typing import TYPE_CHECKING

from .values import export_lazily

if TYPE_CHECKING:
    from .client.background import SyncConnection as SyncConnection
    from .client.handle import JobReference as JobReference
    from .client.handle import SyncJobReference as SyncJobReference
    from .client.job_status import ConcurrencyChange as ConcurrencyChange
    from .client.job_status import JobRecord as JobRecord
    from .client.job_status import JobStack as JobStack
    from .client.job_status import JobStatus as JobStatus
    from .config.calls import AwaitableContext as AwaitableContext
    from .cron import ParsedCronItem as ParsedCronItem
    from .cron.item import ParsedCronOptions as ParsedCronOptions
    from .database.migrations import MigrationReport as MigrationReport
    from .database.statements.bulk_changes import BulkReport as BulkReport
    from .database.statements.cleanup import CleanupReport as CleanupReport
    from .database.statements.control import Deploy as Deploy
    from .database.statements.inspection import JobCounts as JobCounts
    from .database.statements.inspection import JobDetails as JobDetails
    from .database.statements.inspection import JobState as JobState
    from .database.statements.inspection import QueueSummary as QueueSummary
    from .database.statements.inspection import Statistics as Statistics
    from .database.statements.limits import LimitSummary as LimitSummary
    from .database.statements.manage_jobs import CancelReport as CancelReport
    from .database.statements.schedules import RegisteredSchedule as RegisteredSchedule
    from .database.statements.schedules import Schedule as Schedule
    from .database.statements.schedules import ScheduleRun as ScheduleRun
    from .history.error_groups import ErrorGroup as ErrorGroup
    from .history.records import AttemptError as AttemptError
    from .history.records import FinishedJob as FinishedJob
    from .history.records import FinishedState as FinishedState
    from .history.statistics import BacklogSample as BacklogSample
    from .history.statistics import StatisticsGroup as StatisticsGroup
    from .history.statistics import StatisticsList as StatisticsList
    from .history.statistics import TaskStatistics as TaskStatistics
    from .history.task_reports import Progress as Progress
    from .recovery.registry.load import Load as Load
    from .recovery.registry.pool_state import BlockedLoop as BlockedLoop
    from .recovery.registry.pool_state import ExecutorPlace as ExecutorPlace
    from .recovery.registry.pool_state import LaneDescription as LaneDescription
    from .recovery.registry.workers import RunningJob as RunningJob
    from .recovery.registry.workers import WorkerList as WorkerList
    from .recovery.registry.workers import WorkerSummary as WorkerSummary
    from .recovery.sweep import RecoveredWorker as RecoveredWorker
    from .recovery.sweep import SweepReport as SweepReport
    from .values.flags import FlagDescription as FlagDescription
    from .values.job import Pause as Pause

export_lazily(
    __name__,
    {
        "client.background": "SyncConnection",
        "client.handle": "JobReference SyncJobReference",
        "client.job_status": "ConcurrencyChange JobRecord JobStack JobStatus",
        "config.calls": "AwaitableContext",
        "cron": "ParsedCronItem",
        "cron.item": "ParsedCronOptions",
        "database.migrations": "MigrationReport",
        "database.statements.bulk_changes": "BulkReport",
        "database.statements.cleanup": "CleanupReport",
        "database.statements.control": "Deploy",
        "database.statements.inspection": "JobCounts JobDetails JobState QueueSummary Statistics",
        "database.statements.limits": "LimitSummary",
        "database.statements.manage_jobs": "CancelReport",
        "database.statements.schedules": "RegisteredSchedule Schedule ScheduleRun",
        "history.error_groups": "ErrorGroup",
        "history.records": "AttemptError FinishedJob FinishedState",
        "history.statistics": "BacklogSample StatisticsGroup StatisticsList TaskStatistics",
        "history.task_reports": "Progress",
        "recovery.registry.load": "Load",
        "recovery.registry.pool_state": "BlockedLoop ExecutorPlace LaneDescription",
        "recovery.registry.workers": "RunningJob WorkerList WorkerSummary",
        "recovery.sweep": "RecoveredWorker SweepReport",
        "values.flags": "FlagDescription",
        "values.job": "Pause",
    },
)
