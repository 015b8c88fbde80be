"""GraphileTask: a task of Django's framework with options of ours, and the tasks that were defined.

Django makes one backend object for each thread, so what is defined is remembered here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ...spec import JobKeyMode
from .compat import DEFAULT_TASK_QUEUE_NAME, Task, django_task, task_backends

OWN_FIELDS = ("max_attempts", "job_key", "job_key_mode")


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphileTask(Task):
    """A task of `GraphileWorkerBackend`."""

    max_attempts: int | None = None
    """How often it runs at most; None for MAX_ATTEMPTS of the backend."""
    job_key: str | None = None
    """At most one job with this key waits."""
    job_key_mode: JobKeyMode | None = None

    def using(self, **changes: Any) -> GraphileTask:
        """A task with other options; those that are None stay as they are."""
        given = {name: value for name, value in changes.items() if value is not None}
        return replace(self, **given)


def task(function: Any = None, /, **options: Any) -> Any:
    """`django.tasks.task` that also takes `max_attempts`, `job_key` and `job_key_mode`, on every Django."""
    own = {name: options.pop(name) for name in OWN_FIELDS if name in options}

    def decorate(function: Any) -> Any:
        found = django_task(**options)(function)
        return found.using(**own) if own else found

    return decorate if function is None else decorate(function)


_DEFINED: dict[str, Any] = {}


def remember(defined: Any) -> None:
    """Note a task that was defined; the first one of a function counts."""
    _DEFINED.setdefault(defined.module_path, defined)


def defined_tasks() -> dict[str, Any]:
    """By the path of the function."""
    return dict(_DEFINED)


def identifier_of(defined: Any) -> str:
    """The task identifier of its jobs: the path, after the queue if that is not the default one."""
    path: str = defined.module_path
    queue = defined.queue_name
    return path if queue == DEFAULT_TASK_QUEUE_NAME else f"{queue}:{path}"


def backend_of(defined: Any) -> Any:
    return task_backends[defined.backend]
