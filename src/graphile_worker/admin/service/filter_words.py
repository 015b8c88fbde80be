"""A filter in words, as a JobFilter: `state:failed task:send_email`."""

from __future__ import annotations

import shlex

from ...errors import InvalidArgumentError
from ...queries.job_filter import JobFilter
from ..answers import Problem

NAMES = {
    "state": "state",
    "task": "task_identifier",
    "queue": "queue_name",
    "key": "job_key",
    "flag": "flag",
    "worker": "locked_by",
    "error": "error",
}


def job_filter(text: str) -> JobFilter:
    """Raises a Problem for words that are not understood."""
    fields: dict[str, str] = {}
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise Problem(400, "The filter is not valid", str(error)) from None
    for word in words:
        name, colon, value = word.partition(":")
        if not colon or name not in NAMES:
            raise Problem(400, "The filter is not valid", f"{word!r} is not understood.")
        fields[NAMES[name]] = value
    try:
        return JobFilter(**fields)  # type: ignore[arg-type]
    except InvalidArgumentError as error:
        raise Problem(400, "The filter is not valid", str(error)) from None
