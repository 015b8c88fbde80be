"""How others watch (events) and steer (interceptors) a worker or a client."""

from . import events
from .emitter import Events
from .hooks import Hooks, Plugin
from .interceptors import FailJob, LeaveLocked, SkipJob

__all__ = ["Events", "FailJob", "Hooks", "LeaveLocked", "Plugin", "SkipJob", "events"]
