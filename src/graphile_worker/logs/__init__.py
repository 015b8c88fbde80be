"""What a worker reports: its log lines, their format and their destination."""

from typing import TYPE_CHECKING

from ..values.imports import export_lazily

if TYPE_CHECKING:
    from .log_format import configure_logging as configure_logging
    from .log_plugin import LogPlugin as LogPlugin

export_lazily(__name__, {"log_format": "configure_logging", "log_plugin": "LogPlugin"})
