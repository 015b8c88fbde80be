"""Adding and managing jobs from Python: `make_worker_utils`, `add_job_adhoc`, `run_migrations`.

The SQL is in `database/statements/`. `blocking` makes the blocking client of the asynchronous one. Workers
use a client, too: `diagnostics`, `metrics` and what is above them may import this package. Start in
`worker_utils`, then `members/`, which has what is behind `utils.jobs` and the others.
"""

from __future__ import annotations

from ..config.calls import AwaitableContext
from .api import add_job_adhoc, make_worker_utils, run_migrations
from .worker_utils import WorkerUtils

__all__ = ["AwaitableContext", "WorkerUtils", "add_job_adhoc", "make_worker_utils", "run_migrations"]
