"""The table of routes."""

from __future__ import annotations

from . import sign_in_views as login_pages
from .audit import views as audit_pages
from .doctor import views as doctor_pages
from .failures import views as failures_pages
from .jobs import adding as new_job_pages
from .jobs import job_views as job_pages
from .jobs import views as jobs_pages
from .operations import views as operations_pages
from .overview import views as overview_pages
from .queues import views as queues_pages
from .schedules import views as schedules_pages
from .tasks import views as tasks_pages
from .web import events as events_api
from .web import openapi as openapi_api
from .web.routes import Route, with_api
from .workers import views as workers_pages

_SUBJECTS: tuple[Route, ...] = (
    *overview_pages.ROUTES,
    *tasks_pages.ROUTES,
    *queues_pages.ROUTES,
    *workers_pages.ROUTES,
    *schedules_pages.ROUTES,
    *doctor_pages.ROUTES,
    *events_api.ROUTES,
    *operations_pages.ROUTES,
    *audit_pages.ROUTES,
    *jobs_pages.ROUTES,
    *new_job_pages.ROUTES,
    *job_pages.ROUTES,
    *login_pages.ROUTES,
    *openapi_api.ROUTES,
    *failures_pages.ROUTES,
)
ROUTES: tuple[Route, ...] = tuple(with_api(_SUBJECTS))
