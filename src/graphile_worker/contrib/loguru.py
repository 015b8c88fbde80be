"""loguru: lines that tasks log with it name their job, and our own lines go to its sinks."""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import suppress

try:
    from loguru import logger
except ImportError as error:  # pragma: no cover
    raise ImportError(
        "graphile_worker.contrib.loguru needs loguru: pip install 'graphile-worker[loguru]'"
    ) from error

from ..hooks import CallNext, Hooks
from ..logging.job_context import ROOT
from ..values.job import Job
from ..values.outcome import Outcome
from .log_fields import NAMES, checked_names, fields_of_current_job, fields_of_record

__all__ = ["InterceptHandler", "LoguruPlugin", "intercept"]


class LoguruPlugin:
    """Adds the fields of the running job to `extra`: `run(plugins=[LoguruPlugin()])`.

    `names` are the fields: `task`, `job_id`, `attempt`, `max_attempts`, `worker_id`, `pool_id`. With
    `intercept`, a level, the function `intercept` is called too.
    """

    def __init__(self, names: Collection[str] = NAMES, *, intercept: str | None = None) -> None:
        self._names = checked_names(names)
        if intercept is not None:  # now: a worker asks for the level of its logger before it has plugins
            _intercept(intercept)

    def install(self, hooks: Hooks) -> None:
        hooks.around_run(self._contextualize)

    async def _contextualize(self, _: Job, call_next: CallNext) -> Outcome:
        with logger.contextualize(**fields_of_current_job(self._names)):
            return await call_next()


def intercept(level: str = "INFO", *, name: str = ROOT) -> None:
    """Send the lines of this package, or of the logger `name`, to loguru and nowhere else.

    The fields of a line are in `extra`: `event`, `task`, `job_id` and so on.
    """
    source = logging.getLogger(name)
    source.handlers = [InterceptHandler()]
    source.propagate = False
    source.setLevel(level.upper())


_intercept = intercept
"""The same, where a parameter has its name."""


class InterceptHandler(logging.Handler):
    """A handler of the standard library that passes each record on to loguru."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log the record with loguru, from the place in the code where it was made."""
        level: str | int = record.levelno
        with suppress(ValueError):  # a level of the application that loguru does not know
            level = logger.level(record.levelname).name
        text = record.getMessage()
        if record.exc_text and not record.exc_info:  # our failures bring a text, their errors have no frames
            text += f"\n{record.exc_text}"

        def patch(made: object) -> None:
            made.update(  # type: ignore[attr-defined]
                name=record.name, function=record.funcName, line=record.lineno, module=record.module
            )

        bound = logger.bind(**fields_of_record(record)).patch(patch)
        bound.opt(exception=record.exc_info).log(level, "{}", text)
