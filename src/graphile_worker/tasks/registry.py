"""TaskRegistry: the tasks of a worker by identifier; duplicates are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..errors import ConfigError, TaskLoadError
from .decorator import as_task
from .task import AnyTask, Task

TaskList = Mapping[str, Callable[..., Any]] | Sequence[Callable[..., Any]]
"""The type of `task_list`: tasks or functions, or a mapping of identifiers to them."""


class TaskRegistry(Mapping[str, AnyTask]):
    """Tasks by identifier, in the order in which they were added."""

    def __init__(self) -> None:
        self._tasks: dict[str, AnyTask] = {}

    def add(self, task: AnyTask, identifier: str | None = None, *, prepare: bool = True) -> None:
        """Register the task under `identifier` or its own; TaskLoadError if another task has that identifier.

        Registering the same function twice is fine: a task may be imported in several places. With `prepare`,
        an annotation that cannot be used is an error now; while a module is being imported, it is too early
        to tell.
        """
        task = as_task(task, identifier)
        known = self._tasks.get(task.identifier)
        if known is not None and known.function != task.function:
            raise TaskLoadError(
                f"the task {task.identifier!r} is defined twice: here and at {known._place}; rename one of "
                'them, or give it another identifier with @task("...")',
                path=task.path,
                line=task.line,
            )
        if known is None:
            if prepare:
                task._prepare()
            self._tasks[task.identifier] = task

    def __getitem__(self, identifier: str) -> AnyTask:
        return self._tasks[identifier]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tasks)

    def __len__(self) -> int:
        return len(self._tasks)

    def __repr__(self) -> str:
        return f"TaskRegistry({', '.join(self._tasks)})"


def build_registry(task_list: TaskList) -> TaskRegistry:
    """The registry of a list of tasks or functions, or of a mapping of identifiers to them."""
    if isinstance(task_list, TaskRegistry):
        registry = task_list
    else:
        registry = TaskRegistry()
        for identifier, thing in _named(task_list):
            registry.add(as_task(thing, identifier))
    if not registry:
        raise ConfigError("task_list: it is empty; a worker needs at least one task")
    return registry


def _named(task_list: Any) -> Iterable[tuple[str | None, Any]]:
    if isinstance(task_list, Mapping):
        return task_list.items()
    if isinstance(task_list, Task) or callable(task_list):
        raise ConfigError(
            f"task_list: expected a list or a mapping, got {task_list!r}; write [{_name(task_list)}]"
        )
    if isinstance(task_list, str | bytes) or not isinstance(task_list, Iterable):
        raise ConfigError(f"task_list: expected tasks or a mapping of names to functions, got {task_list!r}")
    return [(None, thing) for thing in task_list]


def _name(thing: Any) -> str:
    return getattr(thing, "__name__", "task")
