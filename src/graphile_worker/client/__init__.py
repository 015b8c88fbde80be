"""Adding and managing jobs from Python: `make_worker_utils`, `add_job_adhoc`, `run_migrations`."""

from __future__ import annotations

from .api import add_job_adhoc, make_worker_utils, run_migrations
from .awaitable import AwaitableContext
from .worker_utils import WorkerUtils

__all__ = [
    "AwaitableContext",
    "WorkerUtils",
    "add_job_adhoc",
    "make_worker_utils",
    "run_migrations",
]
