"""The Tasks framework: Django's own, from Django 6 on, or the package django-tasks."""

from __future__ import annotations

from django.core.exceptions import ImproperlyConfigured

try:
    from django.tasks import (
        DEFAULT_TASK_QUEUE_NAME,
        Task,
        TaskContext,
        TaskResult,
        TaskResultStatus,
        task_backends,
    )
    from django.tasks import task as django_task
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import TaskError
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json
except ImportError:
    try:
        from django_tasks import (
            DEFAULT_TASK_QUEUE_NAME,
            TaskContext,
            TaskResult,
            TaskResultStatus,
            task_backends,
        )
        from django_tasks import task as django_task
        from django_tasks.backends.base import BaseTaskBackend
        from django_tasks.base import Task, TaskError
        from django_tasks.exceptions import InvalidTaskError as InvalidTask
        from django_tasks.exceptions import TaskResultDoesNotExist
        from django_tasks.signals import task_enqueued, task_finished, task_started
        from django_tasks.utils import normalize_json
    except ImportError:
        raise ImproperlyConfigured(
            "Django 6 has the Tasks framework; on Django 5.2, install the package django-tasks"
        ) from None

__all__ = [
    "DEFAULT_TASK_QUEUE_NAME", "BaseTaskBackend", "InvalidTask", "Task", "TaskContext", "TaskError",
    "TaskResult", "TaskResultDoesNotExist", "TaskResultStatus", "django_task", "normalize_json",
    "task_backends", "task_enqueued", "task_finished", "task_started",
]  # fmt: skip
