"""Tasks of the benchmark for executors, at the top level of a module, where processes find them."""

from __future__ import annotations

import time
from typing import Any

from ...tasks import task
from .scratch import TASK

SECONDS = 0.01
"""Of pure Python, by the clock of the processor."""


@task(TASK, executor="process")
def nothing(payload: Any) -> None:
    """A short task in a process."""


@task(TASK, executor="process")
def compute(payload: Any) -> None:
    """A computing task in a process."""
    _compute()


@task(TASK)
def compute_in_thread(payload: Any) -> None:
    """The same in a thread."""
    _compute()


def _compute() -> None:
    end = time.thread_time() + SECONDS
    number = 0
    while time.thread_time() < end:
        for _ in range(500):
            number += 1


TASKS = {"process": nothing, "computing process": compute, "computing function": compute_in_thread}
