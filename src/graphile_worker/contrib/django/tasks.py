"""GraphileTask: a task of Django's framework with options of ours, and the tasks that were defined.

The framework is Django's own, from Django 6 on, or the package django-tasks. Django makes one backend object
for each thread, so what is defined is remembered here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, make_dataclass, replace
from datetime import datetime, timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    overload,
)  # fmt: skip

from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone
from django.utils.module_loading import import_string

from ...errors import JobError
from ...values.job import Job
from ...values.job_options import BY_NAME, options_on
from ...values.spec import JobKeyMode, SharedJobOptions

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
    from django.tasks.signals import logger as framework_logger
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
        from django_tasks.signals import logger as framework_logger
        from django_tasks.signals import task_enqueued, task_finished, task_started
        from django_tasks.utils import normalize_json
    except ImportError:
        raise ImproperlyConfigured(
            "Django 6 has the Tasks framework; on Django 5.2, install the package django-tasks"
        ) from None

__all__ = [
    "DEFAULT_TASK_QUEUE_NAME", "BaseTaskBackend", "InvalidTask", "Task", "TaskContext", "TaskError",
    "TaskResult", "TaskResultDoesNotExist", "TaskResultStatus", "django_task", "framework_logger",
    "normalize_json", "task_backends", "task_enqueued", "task_finished", "task_started",
]  # fmt: skip

DJANGOS_FIELDS = ("queue_name", "priority")
"""Options of a job that Django's own tasks have."""
OWN_FIELDS = tuple(option.name for option in options_on("django") if option.name not in DJANGOS_FIELDS)


class OwnOptions(SharedJobOptions, total=False):
    """The options that tasks of Django do not have. What is kept, the backend decides."""

    job_key_mode: JobKeyMode | None
    expires: datetime | timedelta | None


P = ParamSpec("P")
R = TypeVar("R")

WithOptions: Any = make_dataclass(
    "WithOptions",
    [(name, Any, None) for name in OWN_FIELDS],
    bases=(Task,),
    frozen=True,
    slots=True,
    kw_only=True,
)
"""A task with a field for each of these options; None for the backend's default, or none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphileTask(WithOptions, Generic[P, R]):
    """A task of `GraphileWorkerBackend`."""

    if TYPE_CHECKING:  # Django does not say the types of its tasks
        func: Callable[..., R]

        def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> TaskResult[P, R]: ...
        async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> TaskResult[P, R]: ...
        def get_result(self, result_id: str) -> TaskResult[P, R]: ...
        async def aget_result(self, result_id: str) -> TaskResult[P, R]: ...
        def call(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @property
    def identifier(self) -> str:
        """The name of the task everywhere else: in jobs, lists, logs and crontabs."""
        return identifier_of(self)

    def using(self, **changes: Any) -> GraphileTask[P, R]:
        """A task with other options; those that are None stay as they are."""
        given = {name: value for name, value in changes.items() if value is not None}
        refuse_absent_options(given)
        return replace(self, **given)


def refuse_absent_options(names: Iterable[str]) -> None:
    """Raise TypeError for an option of a job that tasks of Django cannot have, and say why."""
    for name in names:
        option = BY_NAME.get(name)
        if option is not None and "django" in option.absent:
            raise TypeError(f"a task of Django has no option {name!r}: {option.absent['django']}")


class Decorator(Protocol):
    """What `@task(…)` applies to a function."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> GraphileTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> GraphileTask[P, R]: ...


class DecoratorWithContext(Protocol):
    """The same for a function whose first argument is the context."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[TaskContext, P], Coroutine[Any, Any, R]], /
    ) -> GraphileTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[TaskContext, P], R], /) -> GraphileTask[P, R]: ...


@overload
def task(function: Callable[P, Coroutine[Any, Any, R]], /) -> GraphileTask[P, R]: ...
@overload
def task(function: Callable[P, R], /) -> GraphileTask[P, R]: ...
@overload
def task(
    *,
    takes_context: Literal[True],
    priority: int = ...,
    queue_name: str = ...,
    backend: str = ...,
    **options: Unpack[OwnOptions],
) -> DecoratorWithContext: ...
@overload
def task(
    *,
    takes_context: Literal[False] = False,
    priority: int = ...,
    queue_name: str = ...,
    backend: str = ...,
    **options: Unpack[OwnOptions],
) -> Decorator: ...
def task(function: Any = None, /, **options: Any) -> Any:
    """`django.tasks.task` that also takes the options of a job, such as `max_attempts`, on every Django."""
    refuse_absent_options(options)
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


ARGUMENTS = 'the payload of a Django task must be {"args": [...], "kwargs": {...}}'


def arguments_of(payload: Any) -> tuple[list[Any], dict[str, Any]]:
    """The arguments that a payload has. Raises JobError."""
    if isinstance(payload, Mapping):
        args, kwargs = payload.get("args", []), payload.get("kwargs", {})
        if isinstance(args, list) and isinstance(kwargs, dict):
            return args, kwargs
    raise JobError(ARGUMENTS)


def unfinished(
    task: Any,
    job: Job,
    status: Any,
    args: Any,
    kwargs: Any,
    *,
    backend: str,
    started_at: datetime | None = None,
    worker_ids: Iterable[str] = (),
) -> Any:
    """The TaskResult of a job that was enqueued, and perhaps started."""
    return TaskResult(
        task=task,
        id=str(job.id),
        status=status,
        enqueued_at=job.created_at if settings.USE_TZ else timezone.make_naive(job.created_at),
        started_at=started_at,
        last_attempted_at=started_at,
        finished_at=None,
        args=args,
        kwargs=kwargs,
        backend=backend,
        errors=[],
        worker_ids=list(worker_ids),
    )


def find_task(identifier: str) -> Any:
    """The task with this identifier; None if there cannot be one, ImportError if it does not exist.

    The name may come from the database, so it does not decide what is imported: only modules of installed
    applications, and only if a task is there.
    """
    queue, separator, path = identifier.partition(":")
    if not separator:
        queue, path = DEFAULT_TASK_QUEUE_NAME, identifier
    found = defined_tasks().get(path)
    if found is None and _may_be_imported(path):
        found = import_string(path)
    if not isinstance(found, Task):
        return None
    return found if found.queue_name == queue else found.using(queue_name=queue)


def _may_be_imported(path: str) -> bool:
    module = path.rpartition(".")[0]
    packages = [config.name for config in apps.get_app_configs()]
    return module in sys.modules or any(module == name or module.startswith(f"{name}.") for name in packages)


def backend_of(defined: Any) -> Any:
    return task_backends[defined.backend]
