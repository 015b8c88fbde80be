"""Tasks: how they are defined and loaded, what they get, and how they are called.

`executors`, `worker` and what is above them may import this package. Start in `task`; `loading/` finds tasks,
`executables/` runs files of other languages.
"""

from .abort_signal import AbortSignal
from .helpers import JobHelpers, SyncHelpers, get_current_helpers, get_current_job
from .injection import Depends
from .loading.load import load_tasks
from .registry import TaskList, TaskRegistry
from .services import Extensions
from .task import Task, TaskOptions

# isort: split
# After `.task`, which binds the name of the submodule: here `task` is the decorator.
from .decorator import task

__all__ = [
    "AbortSignal",
    "Depends",
    "Extensions",
    "JobHelpers",
    "SyncHelpers",
    "Task",
    "TaskList",
    "TaskOptions",
    "TaskRegistry",
    "get_current_helpers",
    "get_current_job",
    "load_tasks",
    "task",
]
