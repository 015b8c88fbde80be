"""Graphile Worker for Python: a job queue that needs nothing but PostgreSQL."""

from .client import WorkerUtils, add_job_adhoc, make_worker_utils, quick_add_job, run_migrations
from .cron import CronItem, parse_cron_items, parse_crontab
from .hooks import Events, FailJob, Hooks, Plugin, SkipJob
from .job import Job
from .options import LocalQueueOptions, RefetchDelayOptions, WorkerOptions
from .runner import Runner, run, run_once
from .spec import JobSpec
from .tasks import JobHelpers, Task, get_current_job, task
from .version import __version__

__all__ = [
    "CronItem",
    "Events",
    "FailJob",
    "Hooks",
    "Job",
    "JobHelpers",
    "JobSpec",
    "LocalQueueOptions",
    "Plugin",
    "RefetchDelayOptions",
    "Runner",
    "SkipJob",
    "Task",
    "WorkerOptions",
    "WorkerUtils",
    "__version__",
    "add_job_adhoc",
    "get_current_job",
    "make_worker_utils",
    "parse_cron_items",
    "parse_crontab",
    "quick_add_job",
    "run",
    "run_migrations",
    "run_once",
    "task",
]
