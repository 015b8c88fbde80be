"""Check-ins of recurring jobs, for Sentry's cron monitors."""

from __future__ import annotations

import logging
import re
import uuid
from collections import Counter
from collections.abc import Collection
from typing import Any

import msgspec
import sentry_sdk
from sentry_sdk.crons import capture_checkin

from ...hooks.events import CronStarting, JobCancelled, JobFailed, JobSucceeded
from ...values.job import Job
from .modes import guarded

NAMES = uuid.UUID("5c1c7a52-6f0e-4c0e-9d3b-0f3a3f1f5b7e")
LONGEST_SLUG = 50
MARK = '"_cron"'

logger = logging.getLogger("graphile_worker.contrib")


class Monitors:
    """The recurring jobs of one worker, and their check-ins.

    A job does not say from which item it comes, so only tasks with exactly one item have a monitor.
    """

    def __init__(self, excluded: Collection[str]) -> None:
        self._excluded = excluded
        self._items: dict[str, Any] = {}

    def learn(self, event: CronStarting) -> None:
        items = [item for item in event.items if item.identifier not in self._excluded]
        counts = Counter(item.task_identifier for item in event.items)
        self._items = {item.task_identifier: item for item in items if counts[item.task_identifier] == 1}
        shared = sorted({item.task_identifier for item in items} - set(self._items))
        if shared:
            logger.warning(
                "no Sentry monitor for %s: several recurring jobs run the same task, and a job does not say "
                "which one it comes from",
                ", ".join(shared),
            )

    def started(self, job: Job) -> None:
        """The first attempt begins."""
        item = self._item_of(job)
        if item is not None and job.attempts == 1:
            _check_in(job, item, "in_progress")

    def succeeded(self, event: JobSucceeded) -> None:
        item = self._item_of(event.job)
        if item is not None:
            _check_in(event.job, item, "ok")

    def failed(self, event: JobFailed | JobCancelled) -> None:
        """The job has failed permanently, or was cancelled."""
        item = self._item_of(event.job)
        if item is not None:
            _check_in(event.job, item, "error")

    def _item_of(self, job: Job) -> Any | None:
        item = self._items.get(job.task_identifier)
        if item is None or MARK not in job.raw_payload:
            return None
        payload = msgspec.json.decode(job.raw_payload)
        return item if isinstance(payload, dict) and "_cron" in payload else None


def _check_in(job: Job, item: Any, status: str) -> None:
    if not sentry_sdk.is_initialized():
        return
    with guarded():
        capture_checkin(
            monitor_slug=slug_of(item.identifier),
            check_in_id=uuid.uuid5(NAMES, f"{job.id} {job.created_at.isoformat()}").hex,
            status=status,
            monitor_config=_config(item),
        )


def _config(item: Any) -> Any:
    """What Sentry needs to create the monitor; None for a schedule that is a function."""
    if item.pattern is None:
        return None
    zone = "UTC" if item.options.tz is None else item.options.tz.key
    return {"schedule": {"type": "crontab", "value": item.pattern}, "timezone": zone}


def slug_of(identifier: str) -> str:
    """The identifier as Sentry accepts it: small letters, digits, `-` and `_`."""
    return re.sub(r"[^a-z0-9_-]+", "-", identifier.lower()).strip("-")[:LONGEST_SLUG] or "job"
