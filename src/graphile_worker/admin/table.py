"""The table of routes."""

from __future__ import annotations

from .audit import api as audit_api
from .audit import views as audit_pages
from .doctor import api as doctor_api
from .doctor import health as health_pages
from .doctor import health as metrics_pages
from .doctor import views as doctor_pages
from .failures import api as failures_api
from .failures import views as failures_pages
from .jobs import adding as new_job_pages
from .jobs import job_views as job_pages
from .jobs import views as jobs_pages
from .operations import api as operations_api
from .operations import views as operations_pages
from .overview import api as overview_api
from .overview import summary_views as summary_pages
from .overview import views as overview_pages
from .queues import views as queues_pages
from .schedules import api as schedules_api
from .schedules import views as schedules_pages
from .tasks import api as tasks_api
from .tasks import views as tasks_pages
from .web import events as events_api
from .web import openapi as openapi_api
from .web import sign_in_views as login_pages
from .web import sign_in_views as session_api
from .web.routes import Route, with_api
from .workers import api as workers_api
from .workers import views as workers_pages

_SUBJECTS: tuple[Route, ...] = (
    *overview_pages.ROUTES,
    *overview_api.ROUTES,
    *summary_pages.ROUTES,
    *tasks_pages.ROUTES,
    *tasks_api.ROUTES,
    *queues_pages.ROUTES,
    *workers_pages.ROUTES,
    *workers_api.ROUTES,
    *schedules_pages.ROUTES,
    *schedules_api.ROUTES,
    *doctor_pages.ROUTES,
    *doctor_api.ROUTES,
    *session_api.ROUTES,
    *events_api.ROUTES,
    *operations_pages.ROUTES,
    *audit_pages.ROUTES,
    *jobs_pages.ROUTES,
    *new_job_pages.ROUTES,
    *job_pages.ROUTES,
    *login_pages.ROUTES,
    *health_pages.ROUTES,
    *openapi_api.ROUTES,
    *metrics_pages.ROUTES,
    *operations_api.ROUTES,
    *audit_api.ROUTES,
    *failures_pages.ROUTES,
    *failures_api.ROUTES,
)
ROUTES: tuple[Route, ...] = tuple(with_api(_SUBJECTS))
