"""Options and filters that calls take, and the types of their other arguments.

Names are imported on first use. No module of the package imports this one: it is for programs.
"""

from typing import TYPE_CHECKING

from .values import export_lazily

if TYPE_CHECKING:
    from .cron import CronItemOptions as CronItemOptions
    from .database.statements.bulk_changes import BulkOptions as BulkOptions
    from .database.statements.cleanup import CleanupTask as CleanupTask
    from .database.statements.inspection import JobFilter as JobFilter
    from .database.statements.inspection import JobOrder as JobOrder
    from .history.records import HistoryFilter as HistoryFilter
    from .runner.application import Lifespan as Lifespan
    from .tasks.registry import TaskList as TaskList
    from .tasks.task import TaskOptions as TaskOptions
    from .values.clock import Clock as Clock
    from .values.flags import FlagSource as FlagSource
    from .values.option_groups import HistoryOptions as HistoryOptions
    from .values.option_groups import LocalQueueOptions as LocalQueueOptions
    from .values.option_groups import NodeOptions as NodeOptions
    from .values.option_groups import RecoveryOptions as RecoveryOptions
    from .values.option_groups import RefetchDelayOptions as RefetchDelayOptions
    from .values.options import WorkerOptions as WorkerOptions
    from .values.spec import JobKeyMode as JobKeyMode
    from .values.spec import JobOptions as JobOptions

export_lazily(
    __name__,
    {
        "cron": "CronItemOptions",
        "database.statements.bulk_changes": "BulkOptions",
        "database.statements.cleanup": "CleanupTask",
        "database.statements.inspection": "JobFilter JobOrder",
        "history.records": "HistoryFilter",
        "runner.application": "Lifespan",
        "tasks.registry": "TaskList",
        "tasks.task": "TaskOptions",
        "values.clock": "Clock",
        "values.option_groups": "HistoryOptions LocalQueueOptions NodeOptions RecoveryOptions "
        "RefetchDelayOptions",
        "values.options": "WorkerOptions",
        "values.spec": "JobKeyMode JobOptions",
        "values.flags": "FlagSource",
    },
)
