"""structlog: lines that tasks log with it name their job, and our own lines go through its processors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, MutableMapping
from typing import Any

try:
    import structlog
except ImportError as error:  # pragma: no cover
    raise ImportError(
        "graphile_worker.contrib.structlog needs structlog: pip install 'graphile-worker[structlog]'"
    ) from error

from ..hooks import CallNext, Hooks
from ..logging.job_context import without_job
from ..values.job import Job
from ..values.outcome import Outcome
from .log_fields import NAMES, checked_names, fields_of_current_job, fields_of_record

__all__ = ["StructlogPlugin", "processor"]
Processor = Callable[[Any, str, MutableMapping[str, Any]], MutableMapping[str, Any]]


class StructlogPlugin:
    """Binds the fields of the running job: `run(plugins=[StructlogPlugin()])`, or `plugins = ["structlog"]`.

    `names` are the fields to bind: `task`, `job_id`, `attempt`, `max_attempts`, `worker_id`, `pool_id`. The
    chain of processors has to contain `structlog.contextvars.merge_contextvars`, as it does by default.
    """

    def __init__(self, names: Collection[str] = NAMES) -> None:
        self._names = checked_names(names)

    def install(self, hooks: Hooks) -> None:
        hooks.around_run(self._bind)

    async def _bind(self, _: Job, call_next: CallNext) -> Outcome:
        tokens = structlog.contextvars.bind_contextvars(**fields_of_current_job(self._names))
        try:
            return await call_next()
        finally:
            structlog.contextvars.reset_contextvars(**tokens)


def processor() -> Processor:
    """A processor for records of the standard library, ours among them: it adds the fields of their job.

    It belongs into `foreign_pre_chain` of a `structlog.stdlib.ProcessorFormatter`. The name of one of our
    events is `event_name`, because structlog calls the message `event`.
    """
    return _add_fields


def _add_fields(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    record = event.get("_record")
    if not isinstance(record, logging.LogRecord):
        return event
    fields = fields_of_record(record)
    if (name := fields.pop("event", None)) is not None:
        event["event_name"] = name
    if "job_id" in fields:
        event["event"] = without_job(record)
    for key, value in fields.items():
        event.setdefault(key, value)
    return event
