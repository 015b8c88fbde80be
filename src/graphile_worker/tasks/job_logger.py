"""JobLogger: the logger of a task; every record carries the worker, the task and the job."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from ..errors import InvalidArgumentError
from ..job import Job

if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:
    _Adapter = logging.LoggerAdapter

LABEL = "job"
_RESERVED = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
"""Attributes of every record, which `extra` must not replace."""


class JobLogger(_Adapter):
    """Adds `label`, `worker_id`, `task_identifier` and `job_id` to each record."""

    def __init__(self, logger: logging.Logger, job: Job, worker_id: str) -> None:
        scope = {
            "label": LABEL,
            "worker_id": worker_id,
            "task_identifier": job.task_identifier,
            "job_id": job.id,
        }
        super().__init__(logger, scope)

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
