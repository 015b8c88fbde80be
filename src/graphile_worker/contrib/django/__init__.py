"""Django: jobs in Django's transactions, and a backend for its Tasks framework.

Add `graphile_worker.contrib.django` to INSTALLED_APPS and run `manage.py migrate`. The module `backend`
serves `django.tasks` (Django 6) and `django-tasks` (Django 5.2); `manage.py graphile_worker` runs a worker.
"""

from typing import TYPE_CHECKING

from ...values import export_lazily

if TYPE_CHECKING:
    from .client import aadd_job as aadd_job
    from .client import aadd_jobs as aadd_jobs
    from .client import add_job as add_job
    from .client import add_jobs as add_jobs
    from .client import utils as utils
    from .dashboard import admin_authorize as admin_authorize
    from .tasks import task as task

export_lazily(
    __name__,
    {"client": "aadd_job aadd_jobs add_job add_jobs utils", "dashboard": "admin_authorize", "tasks": "task"},
)
