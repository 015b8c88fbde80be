"""How others watch (events) and steer (interceptors) a worker or a client."""

from . import events
from .emitter import Events
from .interceptors import FailJob, LeaveLocked, SkipJob
from .plugin import Hooks, Plugin

__all__ = ["Events", "FailJob", "Hooks", "LeaveLocked", "Plugin", "SkipJob", "events"]
