"""What a worker logs: its lines, their format and their destination.

Names are imported on first use. `log_plugin` turns events into lines; start there. `client` and what is above
it may import this package.
"""

from typing import TYPE_CHECKING

from ..values import export_lazily

if TYPE_CHECKING:
    from .configure import configure_logging as configure_logging
    from .formatters import JsonFormatter as JsonFormatter
    from .formatters import TextFormatter as TextFormatter
    from .job_context import JobContextFilter as JobContextFilter

export_lazily(
    __name__,
    {
        "configure": "configure_logging",
        "formatters": "JsonFormatter TextFormatter",
        "job_context": "JobContextFilter",
    },
)
