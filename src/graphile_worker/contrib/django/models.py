"""The tables of Graphile Worker as models, to be read; `utils()` changes jobs."""

from __future__ import annotations

from typing import Any, NoReturn

from django.db import models
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
