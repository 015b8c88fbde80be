"""How code outside the engine watches a worker or a client (events) and steers it (interceptors).

The event classes are in `graphile_worker.hooks.events`. `faults` keeps the engine running when application
code raises. `database` and everything above it may import this package. Start in `hooks`.
"""

from ..values.outcome import Cancelled, Completed, Expired, Failed, Interrupted, Outcome, Snoozed
from .emitter import Events
from .hooks import Hooks, LivePool, Plugin, PluginWithLifecycle, WorkerContext
from .interceptors import (
    AfterRun,
    AroundRun,
    BeforeAdd,
    BeforeRun,
    CallNext,
    FailJob,
    KeptPart,
    LeaveLocked,
    OnRecovery,
    Redactor,
    SkipJob,
)
from .watchers import AddWatcher, RunWatcher

__all__ = [
    "AddWatcher",
    "AfterRun",
    "AroundRun",
    "BeforeAdd",
    "BeforeRun",
    "CallNext",
    "Cancelled",
    "Completed",
    "Events",
    "Expired",
    "FailJob",
    "Failed",
    "Hooks",
    "Interrupted",
    "KeptPart",
    "LeaveLocked",
    "LivePool",
    "OnRecovery",
    "Outcome",
    "Plugin",
    "PluginWithLifecycle",
    "Redactor",
    "RunWatcher",
    "SkipJob",
    "Snoozed",
    "WorkerContext",
]
