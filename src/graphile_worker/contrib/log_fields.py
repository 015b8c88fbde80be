"""The fields of a job in the log lines of other libraries: the same names as in our JSON lines."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

from ..errors import ConfigError
from ..logging.formatters import KEYS
from ..logging.job_context import add_job_fields, current_job_fields
from ..values.text import closest

NAMES = ("task", "job_id", "attempt", "worker_id", "pool_id")
"""The fields that lines get if nothing else is chosen."""
KNOWN = (*NAMES, "max_attempts")


def checked_names(names: Collection[str]) -> tuple[str, ...]:
    """The names, if they are fields of a job."""
    if isinstance(names, str):
        raise ConfigError(f"names: expected a list of fields, got {names!r}")
    for name in names:
        if name not in KNOWN:
            near = closest(name, KNOWN)
            hint = f"did you mean {near!r}?" if near else f"known: {', '.join(KNOWN)}"
            raise ConfigError(f"names: there is no field {name!r}; {hint}")
    return tuple(names)


def fields_of_current_job(names: Collection[str]) -> dict[str, Any]:
    """These fields of the job that runs in this context."""
    fields = renamed(current_job_fields() or {})
    return {name: fields[name] for name in names if name in fields}


def fields_of_record(record: logging.LogRecord) -> dict[str, Any]:
    """The fields of a record about a job, be it ours or one that a task made."""
    add_job_fields(record)
    return renamed(vars(record))


def renamed(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Our attributes among these, under the names that JSON lines have."""
    return {key: attributes[name] for name, key in KEYS.items() if attributes.get(name) is not None}
