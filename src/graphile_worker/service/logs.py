"""The log of a process that runs a worker or a command."""

from __future__ import annotations

import logging
import sys

from ..config import Settings
from ..observability.log_format import ROOT, PipeHandler, configure_logging, debug_wanted


def start_logging(settings: Settings, *, quiet: bool = False) -> PipeHandler:
    """Set up the log. `quiet` is for commands that print results: warnings only, on standard error."""
    options = settings.command_line
    level = "debug" if debug_wanted() else options.log_level
    if quiet and level == "info":
        level = "warning"
    return configure_logging(options.log_format, level, stdout=sys.stderr if quiet else None)


def start_program_logging(settings: Settings, *, has_logger: bool) -> PipeHandler | None:
    """The same for a program; None if the program has set up logging and no format is configured.

    Only a level that is configured is applied then.
    """
    is_set_up = has_logger or logging.getLogger(ROOT).hasHandlers()
    if "log_format" in settings.places or not is_set_up:
        return start_logging(settings)
    if "log_level" in settings.places:
        logging.getLogger(ROOT).setLevel(settings.command_line.log_level.upper())
    return None
