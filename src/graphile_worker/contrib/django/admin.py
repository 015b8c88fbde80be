"""Django's admin: jobs, finished jobs and workers. It never counts all rows, nor searches in payloads."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import msgspec
from django.contrib import admin, messages
from django.core.paginator import Paginator
from django.db import connections
from django.db.models import F, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from django.utils.text import Truncator

from ...database.connections.bound import run_blocking
from ...database.connections.foreign import as_blocking_connection
from ...database.statements.manage_jobs import attempts_made
from ...errors import GraphileWorkerError
from ...history.records import FINISHED_STATES
from ...values.text import count, duration, how_it_failed
from .client import utils
from .conf import worker_settings
from .models import FinishedJob, Job, Worker

COUNTED = 10_000
"""Beyond this many, the pages are not counted."""
LOOKED_AT = 1000
"""How many jobs are read for the list of tasks."""
SHOWN = 120
"""Characters of a result or an error in a list."""
LARGEST_ID = 2**63 - 1
MANAGE = "graphile_worker.manage_jobs"
PAYLOAD = "graphile_worker.view_payload"


class BoundedPaginator(Paginator):
    """Counts up to a limit, so that a large table costs no more than a small one."""

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        return int(rows.order_by()[:COUNTED].count())


class StateFilter(admin.SimpleListFilter):
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in ("ready", "scheduled", "running", "failed")]

    def queryset(self, request: HttpRequest, queryset: QuerySet) -> QuerySet:
        state, now = self.value(), timezone.now()
        if state == "running":
            return queryset.filter(locked_at__isnull=False)
        if state is None:
            return queryset
        waiting = queryset.filter(locked_at__isnull=True)
        if state == "failed":
            return waiting.filter(attempts__gte=F("max_attempts"))
        waiting = waiting.filter(attempts__lt=F("max_attempts"))
        return waiting.filter(run_at__lte=now) if state == "ready" else waiting.filter(run_at__gt=now)


class TaskFilter(admin.SimpleListFilter):
    """Jobs of one task; those of the newest jobs are listed."""

    title = "task"
    parameter_name = "task"
    newest_first = "-id"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        jobs = model_admin.model.objects.order_by(self.newest_first)
        newest = jobs.values_list("task_identifier", flat=True)[:LOOKED_AT]
        names = {*newest, *filter(None, [self.used_parameters.get(self.parameter_name)])}
        return [(name, name) for name in sorted(names)]

    def queryset(self, request: HttpRequest, queryset: QuerySet) -> QuerySet:
        task = self.value()
        return queryset if task is None else queryset.filter(task_identifier=task)


class ReadOnlyAdmin(admin.ModelAdmin):
    """Rows that can be looked at."""

    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER  # they would count the whole table
    paginator = BoundedPaginator
    list_per_page = 50

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class JobsAdmin(ReadOnlyAdmin):
    """What pages of jobs and of finished jobs share."""

    details: tuple[str, ...] = ()
    """The fields of a job's page; who may see payloads also sees `payload`."""

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return [*self.details, "payload"] if request.user.has_perm(PAYLOAD) else list(self.details)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return self.get_fields(request, obj)

    @admin.display(description="task")
    def task(self, job: Any) -> str:
        return job.task_identifier


@admin.register(Job)
class JobAdmin(JobsAdmin):
    """Jobs by descending id, with actions through the client."""

    list_display = ("id", "task", "state", "tried", "due", "queue", "error")
    list_filter = (StateFilter, TaskFilter)
    search_fields = ("=id", "=key")
    search_help_text = "An id or a job key"
    ordering = ("-id",)
    actions = ("run_now", "retry", "give_up", "delete_jobs")
    details = (
        "id", "task_identifier", "state", "tried", "run_at", "queue_name", "priority", "key", "flags",
        "locked_at", "locked_by", "created_at", "updated_at", "errors",
    )  # fmt: skip

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        return super().get_actions(request) if request.user.has_perm(MANAGE) else {}

    @admin.display(description="payload")
    def payload(self, job: Job) -> str:
        found = utils().jobs.get(job.id)
        return "The job is gone." if found is None else _json(found.raw_payload)

    @admin.display(description="errors")
    def errors(self, job: Job) -> str:
        """The errors of its attempts, the last one first, as far as they are kept."""
        return _errors_of(job.id, job.last_error)

    @admin.display(description="error")
    def error(self, job: Job) -> str:
        return _first_line(job.last_error)

    @admin.display(description="task", ordering="task_identifier")
    def task(self, job: Job) -> str:
        return job.task_identifier

    @admin.display(description="run at")
    def due(self, job: Job) -> str:
        return _local(job.run_at)

    @admin.display(description="queue")
    def queue(self, job: Job) -> str:
        return job.queue_name or "-"

    @admin.display(description="attempts")
    def tried(self, job: Job) -> str:
        if job.state != "failed":
            return f"{job.attempts} of {job.max_attempts}"
        if not hasattr(job, "attempts_made"):
            _note_attempts([job])
        return how_it_failed(job.attempts_made, job.max_attempts) or "-"

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        page = super().get_changelist_instance(request)
        _note_attempts(page.result_list)  # of all rows at once
        return page

    @admin.action(description="Run now")
    def run_now(self, request: HttpRequest, queryset: QuerySet) -> None:
        self._change(request, queryset, "due now", utils().reschedule_jobs, run_at=datetime.now(UTC))

    @admin.action(description="Retry, with all attempts")
    def retry(self, request: HttpRequest, queryset: QuerySet) -> None:
        changes = {"run_at": datetime.now(UTC), "attempts": 0}
        self._change(request, queryset, "retried", utils().reschedule_jobs, **changes)

    @admin.action(description="Give up")
    def give_up(self, request: HttpRequest, queryset: QuerySet) -> None:
        reason = f"given up by {request.user}"
        self._change(request, queryset, "given up", utils().permanently_fail_jobs, reason=reason)

    @admin.action(description="Delete")
    def delete_jobs(self, request: HttpRequest, queryset: QuerySet) -> None:
        self._change(request, queryset, "deleted", utils().complete_jobs)

    def _change(
        self, request: HttpRequest, queryset: QuerySet, done: str, change: Any, **changes: Any
    ) -> None:
        ids = list(queryset.values_list("pk", flat=True)[:COUNTED])
        try:
            changed = len(change(ids, **changes))
        except GraphileWorkerError as error:
            self.message_user(request, str(error), messages.ERROR)
            return
        self.message_user(request, f"{count(changed, 'job')} {done}.", messages.SUCCESS)
        if left := len(ids) - changed:
            text = f"{count(left, 'job')} left alone: running, or gone."
            self.message_user(request, text, messages.WARNING)


class EndFilter(admin.SimpleListFilter):
    """Finished jobs that ended in one way."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in FINISHED_STATES]

    def queryset(self, request: HttpRequest, queryset: QuerySet) -> QuerySet:
        state = self.value()
        return queryset if state is None else queryset.filter(state=state)


class FinishedTaskFilter(TaskFilter):
    """Finished jobs of one task; those of the latest ones are listed."""

    newest_first = "-finished_at"

    def queryset(self, request: HttpRequest, queryset: QuerySet) -> QuerySet:
        task = self.value()
        return queryset if task is None else queryset.filter(task_id__in=FinishedJob.objects.task_ids(task))


@admin.register(FinishedJob)
class FinishedJobAdmin(JobsAdmin):
    """Jobs that have ended and are kept, the latest first, with their results and errors."""

    list_display = ("job_id", "task", "state", "shown_result", "shown_error", "tried", "finished", "took")
    list_filter = (EndFilter, FinishedTaskFilter)
    search_fields = ("=job_id",)
    search_help_text = "An id"
    ordering = ("-finished_at", "-job_id")
    details = (
        "job_id", "task", "state", "result", "errors", "tried", "queue_name", "priority", "key", "created_at",
        "run_at", "started_at", "finished_at", "took", "pool_id",
    )  # fmt: skip

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> FinishedJob | None:
        """The latest end of the job: one that was retried may have several."""
        if not object_id.isdecimal() or int(object_id) > LARGEST_ID:
            return None
        found: FinishedJob | None = (
            self.get_queryset(request).filter(pk=object_id).order_by("-finished_at").first()
        )
        return found

    @admin.display(description="result")
    def shown_result(self, job: FinishedJob) -> str:
        return Truncator(job.raw_result or "-").chars(SHOWN)

    @admin.display(description="error")
    def shown_error(self, job: FinishedJob) -> str:
        return _first_line(job.error)

    @admin.display(description="result")
    def result(self, job: FinishedJob) -> str:
        return _json(job.raw_result) or "-"

    @admin.display(description="errors")
    def errors(self, job: FinishedJob) -> str:
        """The errors of its attempts, the last one first, as far as they are kept."""
        return _errors_of(job.job_id, job.error)

    @admin.display(description="payload")
    def payload(self, job: FinishedJob) -> str:
        """The payload as indented JSON, if it is kept."""
        found = FinishedJob.objects.raw_payload(job)
        return _json(found) or "It is not kept."

    @admin.display(description="attempts")
    def tried(self, job: FinishedJob) -> str:
        return f"{job.attempts} of {job.max_attempts}"

    @admin.display(description="finished at", ordering="finished_at")
    def finished(self, job: FinishedJob) -> str:
        return _local(job.finished_at)

    @admin.display(description="duration")
    def took(self, job: FinishedJob) -> str:
        return "-" if job.duration is None else duration(job.duration)


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    list_display = ("id", "host", "pid", "version", "concurrency", "started_at", "last_seen_at")
    ordering = ("-started_at",)


def _note_attempts(jobs: Iterable[Any]) -> None:
    """Set `attempts_made`, for `how_it_failed`."""
    found = list(jobs)
    failed = [job.id for job in found if job.state == "failed"]
    connection = as_blocking_connection(connections[worker_settings().database])
    made = run_blocking(attempts_made(connection, utils().schema, failed))
    for job in found:
        job.attempts_made = made.get(job.id)


def _local(instant: datetime) -> str:
    return f"{timezone.localtime(instant) if timezone.is_aware(instant) else instant:%Y-%m-%d %H:%M:%S}"


def _first_line(text: str | None) -> str:
    lines = (text or "").strip().splitlines()
    return Truncator(lines[0]).chars(SHOWN) if lines else "-"


def _errors_of(job_id: int, last_error: str | None) -> str:
    kept = utils().history.errors_of_job(job_id)
    texts = [f"Attempt {error.attempt}\n{error.traceback or error.message}" for error in kept]
    return _preformatted("\n\n".join(texts) or last_error or "") or "-"


def _json(raw: str | None) -> str:
    return "" if raw is None else _preformatted(msgspec.json.format(raw.encode(), indent=2).decode())


def _preformatted(text: str) -> str:
    return format_html('<pre style="margin: 0; white-space: pre-wrap">{}</pre>', text) if text else ""
