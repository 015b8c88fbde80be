"""The log of a process that runs a worker or a command."""

from __future__ import annotations

import io
import logging
import os
import sys

from ...config import Settings
from ...logging.configure import PipeHandler, configure_logging, debug_wanted
from ...logging.job_context import ROOT


def start_logging(settings: Settings, *, quiet: bool = False) -> PipeHandler:
    """Set up the log. `quiet` is for commands that print results: warnings only, on standard error.

    Otherwise what tasks print appears at once, and in JSON mode as JSON.
    """
    options = settings.process
    levels = {ROOT: "debug"} if debug_wanted() else {}
    level = "warning" if quiet and options.log_level == "info" else options.log_level
    if not quiet and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    return configure_logging(
        options.log_format,
        level,
        levels=levels | options.log_levels,
        stdout=sys.stderr if quiet else None,
        capture=not quiet and options.log_format == "json",
    )


def start_early_logging(log_format: str | None) -> None:
    """Before the settings are known: log errors in them as JSON, if a flag or the environment asks for it."""
    if (log_format or os.environ.get("GRAPHILE_WORKER_LOG_FORMAT")) == "json":
        configure_logging("json", capture=True)


def start_program_logging(settings: Settings, *, has_logger: bool) -> PipeHandler | None:
    """The same for a program; None if the program has set up logging and no format is configured.

    Only a level that is configured is applied then.
    """
    is_set_up = has_logger or logging.getLogger(ROOT).hasHandlers()
    if "log_format" in settings.places or not is_set_up:
        return start_logging(settings)
    if "log_level" in settings.places:
        logging.getLogger(ROOT).setLevel(settings.process.log_level.upper())
    for name, level in settings.process.log_levels.items():
        logging.getLogger(name).setLevel(level.upper())
    return None
