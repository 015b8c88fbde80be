"""The process as it was before: tests call the command, `serve` and `configure_logging` in it.

Which files share a process, and in which order they run, differs from run to run; nothing may be left behind.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from graphile_worker.runner.signals import SignalHandling

# With several test processes `tmp_path` is not in their temporary folder; see run_guard.
TEMPORARY = tuple(
    os.path.realpath(root) + os.sep
    for root in (tempfile.gettempdir(), os.environ.get("PYTEST_DEBUG_TEMPROOT"))
    if root
)
# A checkout may be in a temporary folder itself.
KEPT = tuple(
    os.path.realpath(root) + os.sep for root in (sys.prefix, sys.base_prefix, Path(__file__).parents[2])
)
SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


@contextmanager
def restored_process() -> Iterator[None]:
    """At the end, restore logging, streams, hooks, signal handlers and the search path."""
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    exit_margin = SignalHandling.exit_margin
    search, modules = (sys.path, [*sys.path]), {*sys.modules}
    try:
        with _restored_logging():
            yield
    finally:
        SignalHandling.exit_margin = exit_margin
        # First: a folder that was imported as a package is looked for again in whatever the path is.
        for name in sys.modules.keys() - modules:
            if _is_temporary(sys.modules[name]):
                del sys.modules[name]
        sys.path, sys.path[:] = search  # loading tasks from a folder extends it
        for number, handler in handlers.items():
            if signal.getsignal(number) != handler:
                signal.signal(number, handler)


def _is_temporary(module: object) -> bool:
    """Whether a module was imported from a folder of a test: another test has files of the same names."""
    file = getattr(module, "__file__", None)
    places = [file] if file is not None else [*getattr(module, "__path__", ())]
    return bool(places) and all(_is_in_temporary_folder(str(place)) for place in places)


def _is_in_temporary_folder(place: str) -> bool:
    place = os.path.realpath(place)
    return place.startswith(TEMPORARY) and not place.startswith(KEPT)


@contextmanager
def _restored_logging() -> Iterator[None]:
    before = {logger: _state(logger) for logger in _loggers()}
    factory, disabled_below = logging.getLogRecordFactory(), logging.root.manager.disable
    streams = sys.stdout, sys.stderr
    hooks = sys.excepthook, threading.excepthook, sys.unraisablehook
    show_warning = warnings.showwarning
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams
        sys.excepthook, threading.excepthook, sys.unraisablehook = hooks
        warnings.showwarning = show_warning
        logging.setLogRecordFactory(factory)
        logging.root.manager.disable = disabled_below
        for logger in _loggers():
            wanted = before.get(logger, UNTOUCHED)
            if _state(logger) != wanted:
                _restore(logger, wanted)


State = tuple[int, bool, bool, list[logging.Handler], list[object]]
UNTOUCHED: State = (logging.NOTSET, True, False, [], [])


def _loggers() -> list[logging.Logger]:
    named = logging.root.manager.loggerDict.values()
    return [logging.root, *(logger for logger in named if isinstance(logger, logging.Logger))]


def _state(logger: logging.Logger) -> State:
    handlers = [handler for handler in logger.handlers if not _is_of_pytest(handler)]
    return logger.level, logger.propagate, logger.disabled, handlers, [*logger.filters]


def _restore(logger: logging.Logger, wanted: State) -> None:
    level, logger.propagate, logger.disabled, handlers, filters = wanted
    logger.setLevel(level)
    logger.handlers[:] = [*filter(_is_of_pytest, logger.handlers), *handlers]
    logger.filters[:] = filters  # type: ignore[assignment]


def _is_of_pytest(handler: logging.Handler) -> bool:
    """pytest has others in each phase of a test, so these are neither removed nor restored."""
    return type(handler).__module__.startswith("_pytest.")
