"""What a worker logs: its lines, their format and their destination.

`log_plugin` turns events into lines; start there. `client` and what is above it may import this package.
"""

from typing import TYPE_CHECKING

from ..values.imports import export_lazily

if TYPE_CHECKING:
    from .configure import configure_logging as configure_logging
    from .log_plugin import LogPlugin as LogPlugin

export_lazily(__name__, {"configure": "configure_logging", "log_plugin": "LogPlugin"})
