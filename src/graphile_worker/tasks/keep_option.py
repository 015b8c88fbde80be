"""The options `keep` and `keep_payload` of `@task`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from ..errors import InvalidArgumentError
from ..retention import Retention, check_keep

OPTIONS = ("keep", "keep_payload")


class TaskKeep(msgspec.Struct, frozen=True):
    """What a task says about keeping its finished jobs."""

    keep: bool | timedelta
    payload: bool = False

    def resolved(self, default_seconds: float) -> Retention | None:
        """The same with the worker's retention for `keep=True`; None to keep nothing."""
        if self.keep is False:
            return None
        seconds = default_seconds if self.keep is True else self.keep.total_seconds()
        return Retention(seconds, self.payload)


def task_keep(options: Mapping[str, Any]) -> TaskKeep | None:
    """What the options of `@task` say; None if they say nothing. Raises InvalidArgumentError."""
    keep, payload = (options.get(name) for name in OPTIONS)
    if keep is None:
        if payload:
            raise InvalidArgumentError("keep_payload", "has no effect without keep=True or a timedelta")
        return None
    if not isinstance(keep, bool):
        check_keep(keep, "keep")
    return TaskKeep(keep, bool(payload))
