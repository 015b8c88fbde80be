"""The same tasks, and a plain function besides, which runs in a thread."""

from __future__ import annotations

import time
from typing import Any

from graphile_worker import JobHelpers, task

from .tasks import flaky, follow, gathered, quick, slow, tick

__all__ = ["blocking", "flaky", "follow", "gathered", "quick", "slow", "tick"]


@task
def blocking(payload: Any, helpers: JobHelpers) -> None:
    """Blocks its thread for a moment, and asks the database from there."""
    time.sleep(0.005)
    helpers.sync.query("select 1")
