"""How code outside the engine watches a worker or a client (events) and steers it (interceptors).

The event classes are in `graphile_worker.hooks.events`.
"""

from .add_watchers import AddWatcher
from .emitter import Events
from .hooks import Hooks
from .interceptors import (
    AfterRun,
    AroundRun,
    BeforeAdd,
    BeforeRun,
    CallNext,
    FailJob,
    LeaveLocked,
    OnRecovery,
    SkipJob,
)
from .plugins import LivePool, Plugin, PluginWithLifecycle, WorkerContext
from .redaction import KeptPart, Redactor
from .run_watchers import RunWatcher

__all__ = [
    "AddWatcher",
    "AfterRun",
    "AroundRun",
    "BeforeAdd",
    "BeforeRun",
    "CallNext",
    "Events",
    "FailJob",
    "Hooks",
    "KeptPart",
    "LeaveLocked",
    "LivePool",
    "OnRecovery",
    "Plugin",
    "PluginWithLifecycle",
    "Redactor",
    "RunWatcher",
    "SkipJob",
    "WorkerContext",
]
