"""Executors: run tasks outside of the worker, in processes of their own or on a cluster.

Names are imported on first use: the processes that run tasks import this package too, and must start fast.
`worker`, `runner` and what is above them may import it. Start in `call` for the protocol, then `process`.
"""

from typing import TYPE_CHECKING

from ..values import export_lazily

if TYPE_CHECKING:
    from .call import TaskCall as TaskCall
    from .call import TaskExecutor as TaskExecutor
    from .call import TaskStack as TaskStack
    from .process import ProcessExecutor as ProcessExecutor
    from .run_call import RemoteHelpers as RemoteHelpers

export_lazily(
    __name__,
    {"call": "TaskCall TaskExecutor TaskStack", "process": "ProcessExecutor", "run_call": "RemoteHelpers"},
)
