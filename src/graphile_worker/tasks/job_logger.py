"""JobLogger: the logger of a task; every record carries the worker, the task and the job."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from ..errors import InvalidArgumentError
from ..job import Job
from ..observability.job_context import job_fields

if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:
    _Adapter = logging.LoggerAdapter

LABEL = "job"
PREFIX = "task %s (job %d): "
_RESERVED = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
"""Attributes of every record, which `extra` must not replace."""


class JobLogger(_Adapter):
    """A logger for one job. Each message begins with the task and the job, whatever formats it.

    Records carry `label`, `pool_id`, `worker_id`, `task_identifier`, `job_id`, `attempt` and `max_attempts`.
    """

    def __init__(self, logger: logging.Logger, job: Job, worker_id: str) -> None:
        super().__init__(logger, {"label": LABEL, **job_fields(job, worker_id)})
        self._job = job

    def scope(self, fields: Mapping[str, Any] | None = None, /, **more: Any) -> JobLogger:
        """A logger whose records carry more fields: `helpers.logger.scope(label="bank", order=17)`.

        Text lines begin with `label`; JSON lines have all fields.
        """
        added = {**(fields or {}), **more}
        for name in added:
            if name in _RESERVED:
                raise InvalidArgumentError(
                    name, "every log record has an attribute of that name; choose another"
                )
        scoped = copy.copy(self)
        scoped.extra = {**(self.extra or {}), **added}
        return scoped

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        given = kwargs.get("extra")
        kwargs["extra"] = {**given, **(self.extra or {})} if given else self.extra
        return msg, kwargs

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a message; all other methods call this one.

        Task and job are arguments of the message: tools that group records by it would otherwise see a new
        message for each job.
        """
        if not self.isEnabledFor(level):
            return
        text, arguments = with_prefix(self._job, msg, args)
        text, kwargs = self.process(text, kwargs)  # type: ignore[assignment]
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1  # the caller, not this method
        self.logger.log(level, text, *arguments, **kwargs)


def with_prefix(job: Job, msg: object, args: tuple[object, ...]) -> tuple[str, tuple[object, ...]]:
    """A message and its arguments that begin with the name of the job."""
    if len(args) == 1 and isinstance(args[0], Mapping):  # `%(name)s`: no other arguments can be added
        return f"task {job.task_identifier} (job {job.id}): ".replace("%", "%%") + str(msg), args
    if args:
        text = str(msg)
    elif isinstance(msg, str):
        text = msg.replace("%", "%%")  # without arguments, `%` means itself
    else:
        text, args = "%s", (msg,)
    return f"{PREFIX}{text}", (job.task_identifier, job.id, *args)
