"""Keeps our own log lines from becoming events in Sentry: each failure would be reported twice."""

from __future__ import annotations

from typing import Any

from sentry_sdk.integrations.logging import ignore_logger
from sentry_sdk.scope import add_global_event_processor

OWN = ("graphile_worker", "graphile_worker.[!j]*")
"""All our loggers except `graphile_worker.job`, by which tasks log: their lines are the application's."""

_is_done = False


def silence_own_lines() -> None:
    """Ignore our loggers, and our lines in a logger that the program has passed to the worker."""
    global _is_done
    if _is_done:
        return
    _is_done = True
    for name in OWN:
        ignore_logger(name)
    add_global_event_processor(_drop_own_line)


def _drop_own_line(event: Any, hint: dict[str, Any]) -> Any:
    record = hint.get("log_record")
    is_own = record is not None and hasattr(record, "event") and hasattr(record, "job_id")
    return None if is_own else event
