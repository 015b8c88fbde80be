"""The table of routes."""

from __future__ import annotations

from .api import actions as actions_api
from .api import audit as audit_api
from .api import doctor as doctor_api
from .api import events as events_api
from .api import failures as failures_api
from .api import job as job_api
from .api import jobs as jobs_api
from .api import openapi as openapi_api
from .api import operations as operations_api
from .api import overview as overview_api
from .api import queues as queues_api
from .api import schedules as schedules_api
from .api import session as session_api
from .api import tasks as tasks_api
from .api import workers as workers_api
from .pages import actions as actions_pages
from .pages import audit as audit_pages
from .pages import doctor as doctor_pages
from .pages import failures as failures_pages
from .pages import health as health_pages
from .pages import job as job_pages
from .pages import jobs as jobs_pages
from .pages import login as login_pages
from .pages import metrics as metrics_pages
from .pages import new_job as new_job_pages
from .pages import operations as operations_pages
from .pages import overview as overview_pages
from .pages import queues as queues_pages
from .pages import schedules as schedules_pages
from .pages import summary as summary_pages
from .pages import tasks as tasks_pages
from .pages import workers as workers_pages
from .routes import Route

ROUTES: tuple[Route, ...] = (
    *overview_pages.ROUTES,
    *overview_api.ROUTES,
    *summary_pages.ROUTES,
    *tasks_pages.ROUTES,
    *tasks_api.ROUTES,
    *queues_pages.ROUTES,
    *queues_api.ROUTES,
    *workers_pages.ROUTES,
    *workers_api.ROUTES,
    *schedules_pages.ROUTES,
    *schedules_api.ROUTES,
    *doctor_pages.ROUTES,
    *doctor_api.ROUTES,
    *session_api.ROUTES,
    *actions_api.ROUTES,
    *events_api.ROUTES,
    *actions_pages.ROUTES,
    *operations_pages.ROUTES,
    *audit_pages.ROUTES,
    *jobs_pages.ROUTES,
    *jobs_api.ROUTES,
    *new_job_pages.ROUTES,
    *job_pages.ROUTES,
    *job_api.ROUTES,
    *login_pages.ROUTES,
    *health_pages.ROUTES,
    *openapi_api.ROUTES,
    *metrics_pages.ROUTES,
    *operations_api.ROUTES,
    *audit_api.ROUTES,
    *failures_pages.ROUTES,
    *failures_api.ROUTES,
)
