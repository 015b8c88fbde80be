"""The tasks of a worker with an app."""

from __future__ import annotations

import os

from ..errors import TaskLoadError
from ..options import WorkerOptions
from ..tasks.load import load_tasks
from ..tasks.registry import TaskList, TaskRegistry, build_registry
from .application import App

DEFAULT = WorkerOptions().task_directory


def tasks_of(
    app: App, options: WorkerOptions, *, task_list: TaskList | None = None, is_named: bool | None = None
) -> TaskRegistry:
    """The tasks of the app, joined with `task_list` or with a task directory that was named.

    Without either, the default directory is for apps that have no tasks. `is_named` overrides whether the
    directory in the options counts as named.
    """
    if is_named is None:
        is_named = options.task_directory != DEFAULT
    registry = TaskRegistry()
    for task in app.tasks.values():
        registry.add(task)
    if task_list is not None:
        more = build_registry(task_list)
    elif is_named or (not registry and os.path.exists(options.task_directory)):
        more = load_tasks(options.task_directory)
    else:
        more = TaskRegistry()
    for task in more.values():
        registry.add(task)
    if not registry:
        raise TaskLoadError(
            f"{app.name} has no tasks, and there is no directory {options.task_directory!r}; register tasks "
            "with @app.task or App(tasks=[...]), or name them with --tasks or task_directory"
        )
    return registry
