"""The context of a measurement: scratch schema, worker options, and scale."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...values.options import WorkerOptions
from .scratch import Scratch

Step = Callable[[str], None]
"""Called before each step of a measurement with its description."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much to measure."""

    jobs: int = 20_000
    """Jobs of a throughput measurement; others are scaled accordingly."""
    rounds: int = 3
    processes: int = 1
    max_backlog: int = 100_000
    executor: str | None = None
    """Measure this executor, too."""

    @property
    def samples(self) -> int:
        """Jobs of a latency measurement."""
        return min(1000, max(10, self.jobs // 20))

    @property
    def single_adds(self) -> int:
        """Jobs added one by one."""
        return min(2000, max(10, self.jobs // 10))

    @property
    def ready_jobs(self) -> int:
        """Jobs run beside a backlog."""
        return min(5000, self.jobs)

    @property
    def backlogs(self) -> list[int]:
        """Backlog sizes in ascending order."""
        sizes = [size for size in (10_000, 100_000, 1_000_000) if size < self.max_backlog]
        return [*sizes, self.max_backlog] if self.max_backlog else []


@dataclass(frozen=True, slots=True)
class Workbench:
    """One run of the benchmark."""

    scratch: Scratch
    options: WorkerOptions
    """Connection and scratch schema; everything else has its default."""
    scale: Scale

    def worker_options(self, **changes: Any) -> WorkerOptions:
        """Options for one worker."""
        return self.options.with_values(**changes)
