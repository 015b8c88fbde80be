"""Graphile Worker for Python: a job queue that needs nothing but PostgreSQL.

The names below are imported when they are first used, so that a command or a program that only adds jobs
does not load the worker.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from .client import WorkerUtils, add_job_adhoc, make_worker_utils, run_migrations
    from .cron import CronItem, parse_cron_items, parse_crontab
    from .hooks import Events, FailJob, Hooks, Plugin, SkipJob
    from .job import Job
    from .options import LocalQueueOptions, RefetchDelayOptions, WorkerOptions
    from .outcome import Completed, Failed, Interrupted, Outcome
    from .queries.inspection import JobDetails, JobFilter, JobState, QueueSummary, Statistics
    from .queries.maintenance import CleanupReport, CleanupTask
    from .runner import run, run_once
    from .runner.runner import Runner
    from .spec import JobKeyMode, JobSpec
    from .tasks import JobHelpers, Task, get_current_job, task

__all__ = [
    "CleanupReport",
    "CleanupTask",
    "Completed",
    "CronItem",
    "Events",
    "FailJob",
    "Failed",
    "Hooks",
    "Interrupted",
    "Job",
    "JobDetails",
    "JobFilter",
    "JobHelpers",
    "JobKeyMode",
    "JobSpec",
    "JobState",
    "LocalQueueOptions",
    "Outcome",
    "Plugin",
    "QueueSummary",
    "RefetchDelayOptions",
    "Runner",
    "SkipJob",
    "Statistics",
    "Task",
    "WorkerOptions",
    "WorkerUtils",
    "__version__",
    "add_job_adhoc",
    "get_current_job",
    "make_worker_utils",
    "parse_cron_items",
    "parse_crontab",
    "run",
    "run_migrations",
    "run_once",
    "task",
]

_HOMES = {
    "client": ("WorkerUtils", "add_job_adhoc", "make_worker_utils", "run_migrations"),
    "cron": ("CronItem", "parse_cron_items", "parse_crontab"),
    "hooks": ("Events", "FailJob", "Hooks", "Plugin", "SkipJob"),
    "job": ("Job",),
    "options": ("LocalQueueOptions", "RefetchDelayOptions", "WorkerOptions"),
    "outcome": ("Completed", "Failed", "Interrupted", "Outcome"),
    "queries.inspection": ("JobDetails", "JobFilter", "JobState", "QueueSummary", "Statistics"),
    "queries.maintenance": ("CleanupReport", "CleanupTask"),
    "runner": ("run", "run_once"),
    "runner.runner": ("Runner",),
    "spec": ("JobKeyMode", "JobSpec"),
    "tasks": ("JobHelpers", "Task", "get_current_job", "task"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    try:
        home = _HOME_OF[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    value = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
