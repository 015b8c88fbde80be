"""The table of routes."""

from __future__ import annotations

from .api import actions, audit, events, openapi, operations, session
from .api import doctor as doctor_api
from .api import failures as failures_api
from .api import job as job_api
from .api import jobs as jobs_api
from .api import overview as overview_api
from .api import queues as queues_api
from .api import schedules as schedules_api
from .api import tasks as tasks_api
from .api import workers as workers_api
from .pages import actions as action_pages
from .pages import api, failures, health, job, jobs, login, metrics, new_job, overview, summary, tasks
from .pages import audit as audit_pages
from .pages import doctor as doctor_pages
from .pages import operations as operation_pages
from .pages import queues as queue_pages
from .pages import schedules as schedule_pages
from .pages import workers as worker_pages
from .routes import Route

ROUTES: tuple[Route, ...] = (
    *overview.ROUTES,
    *overview_api.ROUTES,
    *summary.ROUTES,
    *tasks.ROUTES,
    *tasks_api.ROUTES,
    *queue_pages.ROUTES,
    *queues_api.ROUTES,
    *worker_pages.ROUTES,
    *workers_api.ROUTES,
    *schedule_pages.ROUTES,
    *schedules_api.ROUTES,
    *doctor_pages.ROUTES,
    *doctor_api.ROUTES,
    *session.ROUTES,
    *actions.ROUTES,
    *events.ROUTES,
    *action_pages.ROUTES,
    *operation_pages.ROUTES,
    *audit_pages.ROUTES,
    *jobs.ROUTES,
    *jobs_api.ROUTES,
    *new_job.ROUTES,
    *job.ROUTES,
    *job_api.ROUTES,
    *login.ROUTES,
    *health.ROUTES,
    *openapi.ROUTES,
    *api.ROUTES,
    *metrics.ROUTES,
    *operations.ROUTES,
    *audit.ROUTES,
    *failures.ROUTES,
    *failures_api.ROUTES,
)
