"""Options from the configuration file, the environment, and the command line or call.

`client` and what is above it may import this package. Start in `resolve`.
"""

from .resolve import Host, Settings, combine, resolve, resolve_settings

__all__ = ["Host", "Settings", "combine", "resolve", "resolve_settings"]
