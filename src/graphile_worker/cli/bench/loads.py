"""The kinds of jobs that `graphile-worker bench` runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from ...values.spec import JobSpec

TASK = "bench"
QUEUES = 1000
SLOTS_TO_WAIT = 100


class ExpectedError(Exception):
    """What a job of the load `failing` raises."""


async def fail() -> None:
    """Fail on purpose."""
    raise ExpectedError


async def wait() -> None:
    """Wait as long as for a fast server."""
    await asyncio.sleep(0.005)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchLoad:
    """Jobs of one kind, and the worker that runs them."""

    title: str
    """What the table says, in front of the number of worker processes."""
    run: Callable[[], Coroutine[Any, Any, None]] | None = None
    """What a job does."""
    job: Callable[[int], dict[str, Any]] = lambda number: {}
    """The options of a job by its number."""
    options: dict[str, Any] = field(default_factory=dict)
    """The options of the worker that are not the default."""

    def specs(self, first: int, last: int) -> list[JobSpec]:
        """The jobs with the numbers from `first` to just before `last`."""
        return [JobSpec(TASK, {"id": number}, **self.job(number)) for number in range(first, last)]


PLAIN = "plain"
LOADS = {
    PLAIN: BenchLoad(title="running"),
    "failing": BenchLoad(title="running, all fail", run=fail, job=lambda number: {"max_attempts": 1}),
    "queues": BenchLoad(
        title=f"running, {QUEUES:,} named queues",
        job=lambda number: {"queue_name": f"bench {number % QUEUES}"},
    ),
    "one-queue": BenchLoad(title="running, one named queue", job=lambda number: {"queue_name": "bench"}),
    "waiting": BenchLoad(
        title=f"running, 5 ms each, concurrency {SLOTS_TO_WAIT}",
        run=wait,
        options={"concurrency": SLOTS_TO_WAIT},
    ),
    "kept": BenchLoad(title="running, all kept", job=lambda number: {"keep": True}),
}
