"""Plugins that report what a worker does."""

from .log_format import configure_logging
from .log_plugin import LogPlugin

__all__ = ["LogPlugin", "configure_logging"]
