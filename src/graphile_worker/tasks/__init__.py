"""What can be run: tasks, where they are found, what they are given and how they are called."""

from .abort_signal import AbortSignal
from .batch import BatchFailure, may_be_batch, settle_batch
from .call import call_task
from .extensions import Extensions
from .helpers import JobHelpers, current_job, get_current_helpers, get_current_job
from .load import load_tasks
from .queue_names import QueueNames
from .registry import TaskList, TaskRegistry, build_registry
from .services import WorkerServices
from .sync_helpers import SyncHelpers
from .task import AnyTask, Task
from .threads import TaskThreads

# isort: split
# After `.task`, which binds the submodule's name: the decorator is what `task` means here.
from .decorator import as_task, task

__all__ = [
    "AbortSignal",
    "AnyTask",
    "BatchFailure",
    "Extensions",
    "JobHelpers",
    "QueueNames",
    "SyncHelpers",
    "Task",
    "TaskList",
    "TaskRegistry",
    "TaskThreads",
    "WorkerServices",
    "as_task",
    "build_registry",
    "call_task",
    "current_job",
    "get_current_helpers",
    "get_current_job",
    "load_tasks",
    "may_be_batch",
    "settle_batch",
    "task",
]
