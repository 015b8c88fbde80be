"""Warns of payloads that are too large for a queue, once per task and process."""

from __future__ import annotations

import logging
from collections.abc import Sequence

LARGE_PAYLOAD = 1_000_000
"""Characters of JSON text above which a payload is large."""
MAX_WARNED = 1000

logger = logging.getLogger("graphile_worker.client")
_warned: set[str] = set()


def warn_of_large_payload(task: str, payload: str) -> None:
    """Warn of a payload that is larger than LARGE_PAYLOAD, unless this task has been named before."""
    if task in _warned or len(_warned) >= MAX_WARNED:
        return
    _warned.add(task)
    logger.warning(
        "a job of task %s was added with a payload of %.1f MB, which the database copies at every attempt; "
        "store the data elsewhere and pass a reference (this warning appears once per task)",
        task,
        len(payload.encode()) / 1_000_000,
    )


def warn_of_large_payloads(tasks: Sequence[str], payloads: Sequence[str]) -> None:
    """The same for many jobs."""
    for task, payload in zip(tasks, payloads, strict=True):
        if len(payload) > LARGE_PAYLOAD:
            warn_of_large_payload(task, payload)
