"""Options from the configuration file, the environment, and the command line or call.

`client` and what is above it may import this package. Start in `resolve`.
"""

from .resolve import Settings, combine, resolve, resolve_settings

__all__ = ["Settings", "combine", "resolve", "resolve_settings"]
