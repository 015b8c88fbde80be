"""The tables of Graphile Worker as models, to be read; `utils()` changes jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
from django.db import connections, models
from django.db.models.expressions import RawSQL
from django.db.models.functions import Cast
from django.utils import timezone

from .conf import table_name


class _ReadOnly(models.Model):
    """Rows that are never written."""

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError("jobs are not changed through models; use graphile_worker.contrib.django.utils()")

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError("jobs are not deleted through models; use graphile_worker.contrib.django.utils()")


class Job(_ReadOnly):
    """A job in the queue. The payload is not here: `utils().jobs.get(id).payload`."""

    id = models.BigIntegerField(primary_key=True)
    task_identifier = models.TextField()
    queue_name = models.TextField(null=True)
    priority = models.SmallIntegerField()
    run_at = models.DateTimeField()
    attempts = models.SmallIntegerField()
    max_attempts = models.SmallIntegerField()
    last_error = models.TextField(null=True)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    key = models.TextField(null=True)
    locked_at = models.DateTimeField(null=True)
    locked_by = models.TextField(null=True)
    revision = models.IntegerField()
    flags = models.JSONField(null=True)

    class Meta:
        managed = False
        db_table = table_name("jobs")
        permissions = (
            ("manage_jobs", "Can run, retry, give up and delete jobs"),
            ("view_payload", "Can see payloads of jobs"),
        )

    def __str__(self) -> str:
        return f"{self.task_identifier} {self.id}"

    @property
    def state(self) -> str:
        """`running` (locked by a worker), `failed` (permanently), `ready` or `scheduled`."""
        if self.locked_at is not None:
            return "running"
        if self.attempts >= self.max_attempts:
            return "failed"
        return "ready" if self.run_at <= timezone.now() else "scheduled"


class FinishedJobManager(models.Manager):
    """Adds `task_identifier` and `raw_result`, the JSON of the result, to each row."""

    def get_queryset(self) -> models.QuerySet:
        return (
            super()
            .get_queryset()
            .exclude(state="removed")
            .annotate(
                task_identifier=RawSQL(TASK_NAME, ()),  # noqa: S611 - it has no values
                raw_result=Cast(RawSQL(RESULT, ()), models.TextField(null=True)),  # noqa: S611
            )
        )

    def task_ids(self, identifier: str) -> list[int]:
        """The numbers of a task: one whose row was deleted and added again has several."""
        return self._first_column(TASK_IDS, identifier, identifier)

    def raw_payload(self, job: FinishedJob) -> str | None:
        """The JSON of its payload; None if it was not kept."""
        found = self._first_column(PAYLOAD, job.job_id, job.finished_at)
        return found[0] if found else None

    def _first_column(self, sql: str, *values: Any) -> list[Any]:
        with connections[self.db].cursor() as cursor:
            cursor.execute(sql, values)
            return [value for (value,) in cursor.fetchall()]


class FinishedJob(_ReadOnly):
    """A job that has ended, as the history has it. One that was retried may have ended several times."""

    job_id = models.BigIntegerField(primary_key=True)
    task_id = models.IntegerField()
    state = models.TextField()
    """`completed`, `failed`, `cancelled` or `expired`."""
    queue_name = models.TextField(null=True)
    key = models.TextField(null=True, db_column="job_key")
    priority = models.SmallIntegerField()
    attempts = models.SmallIntegerField()
    max_attempts = models.SmallIntegerField()
    created_at = models.DateTimeField()
    run_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    """When the last attempt started."""
    finished_at = models.DateTimeField()
    duration = models.FloatField(null=True)
    """Seconds that the last attempt took."""
    pool_id = models.TextField(null=True)
    error = models.TextField(null=True)

    if TYPE_CHECKING:
        task_identifier: str
        raw_result: str | None

    objects = FinishedJobManager()

    class Meta:
        managed = False
        db_table = table_name("_private_py_history")

    def __str__(self) -> str:
        return f"job {self.job_id}"

    @property
    def result(self) -> Any:
        """What the task returned; for rows that the manager has read."""
        return None if self.raw_result is None else msgspec.json.decode(self.raw_result)


HISTORY, NAMES, TASKS = map(table_name, ("_private_py_history", "_private_py_task_names", "_private_tasks"))
TASK_NAME = f"""coalesce(
  (select names.identifier from {NAMES} names where names.id = {HISTORY}.task_id),
  (select tasks.identifier from {TASKS} tasks where tasks.id = {HISTORY}.task_id)
)"""  # noqa: S608 - names of tables
RESULT = f"{HISTORY}.result"
TASK_IDS = f"""select id from {NAMES} where identifier = %s
union select id from {TASKS} where identifier = %s"""  # noqa: S608 - names of tables
PAYLOAD = f"select payload::text from {HISTORY} where job_id = %s and finished_at = %s"  # noqa: S608


class Worker(_ReadOnly):
    """A worker of this package that is running, or dead and not swept yet."""

    id = models.TextField(primary_key=True)
    host = models.TextField()
    pid = models.IntegerField()
    version = models.TextField()
    concurrency = models.IntegerField()
    started_at = models.DateTimeField()
    last_seen_at = models.DateTimeField()

    class Meta:
        managed = False
        db_table = table_name("_private_py_workers")

    def __str__(self) -> str:
        return f"{self.host} {self.pid}"
