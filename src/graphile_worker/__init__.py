"""Graphile Worker for Python: a job queue that needs nothing but PostgreSQL.

Here is what a program that adds and runs jobs writes. The rest is in modules: `options` has the options and
filters that calls take, `results` what they return, `hooks` events and interceptors, `logging` the set-up of
logs, `errors` every error, `executors` and `testing` what their names say.

Names are imported on first use, so that a program that only adds jobs does not load the worker.
"""

from typing import TYPE_CHECKING

from .values import __version__ as __version__
from .values import export_lazily

if TYPE_CHECKING:
    from .client import WorkerUtils as WorkerUtils
    from .client import add_job_adhoc as add_job_adhoc
    from .client import make_worker_utils as make_worker_utils
    from .client import run_migrations as run_migrations
    from .client.handle import JobHandle as JobHandle
    from .client.handle import SyncJobHandle as SyncJobHandle
    from .client.sync_worker_utils import SyncWorkerUtils as SyncWorkerUtils
    from .client.sync_worker_utils import make_sync_worker_utils as make_sync_worker_utils
    from .cron import CronItem as CronItem
    from .cron import parse_cron_items as parse_cron_items
    from .cron import parse_crontab as parse_crontab
    from .errors import GraphileWorkerError as GraphileWorkerError
    from .runner import run as run
    from .runner import run_once as run_once
    from .runner.application import App as App
    from .runner.process.serve import serve as serve
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
    from .values.attempts import GiveUp as GiveUp
    from .values.attempts import Retry as Retry
    from .values.attempts import RetryIn as RetryIn
    from .values.attempts import Snooze as Snooze
    from .values.concurrency import Lane as Lane
    from .values.concurrency import Limit as Limit
    from .values.job import Job as Job
    from .values.outcome import FailedJob as FailedJob
    from .values.spec import JobSpec as JobSpec
    from .values.spec import Unique as Unique

export_lazily(
    __name__,
    {
        "client": "WorkerUtils add_job_adhoc make_worker_utils run_migrations",
        "client.handle": "JobHandle SyncJobHandle",
        "client.sync_worker_utils": "SyncWorkerUtils make_sync_worker_utils",
        "cron": "CronItem parse_cron_items parse_crontab",
        "errors": "GraphileWorkerError",
        "runner.process.serve": "serve",
        "runner": "run run_once",
        "runner.application": "App",
        "runner.runner": "Runner",
        "tasks": "AbortSignal Depends Extensions JobHelpers SyncHelpers Task get_current_helpers "
        "get_current_job task",
        "values.attempts": "GiveUp Retry RetryIn Snooze",
        "values.concurrency": "Lane Limit",
        "values.job": "Job",
        "values.outcome": "FailedJob",
        "values.spec": "JobSpec Unique",
    },
    "__version__",
)
