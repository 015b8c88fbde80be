"""JobLogger: the logger a task gets; every record says which worker, task and job it belongs to."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from ..job import Job

if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:
    _Adapter = logging.LoggerAdapter

LABEL = "job"


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

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        given = kwargs.get("extra")
        kwargs["extra"] = {**given, **(self.extra or {})} if given else self.extra
        return msg, kwargs
