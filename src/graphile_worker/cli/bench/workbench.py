"""What every measurement is given: the scratch schema, options for workers, how much to measure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...options import WorkerOptions
from .scratch import Scratch

Step = Callable[[str], None]
"""Told before each step of a measurement, with what it is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How much to measure."""

    jobs: int = 20_000
    """Jobs of a throughput measurement; the others are smaller in proportion."""
    rounds: int = 3
    processes: int = 1
    max_backlog: int = 100_000

    @property
    def samples(self) -> int:
        """Jobs of a latency measurement."""
        return min(1000, max(10, self.jobs // 20))

    @property
    def single_adds(self) -> int:
        """Jobs that are added one by one."""
        return min(2000, max(10, self.jobs // 10))

    @property
    def ready_jobs(self) -> int:
        """Jobs that are run beside a backlog."""
        return min(5000, self.jobs)

    @property
    def backlogs(self) -> list[int]:
        """Sizes of backlogs in ascending order."""
        sizes = [size for size in (10_000, 100_000, 1_000_000) if size < self.max_backlog]
        return [*sizes, self.max_backlog] if self.max_backlog else []


@dataclass(frozen=True, slots=True)
class Workbench:
    """One run of the benchmark."""

    scratch: Scratch
    options: WorkerOptions
    """The connection and the scratch schema; all else at its default."""
    extent: Extent

    def worker_options(self, **changes: Any) -> WorkerOptions:
        """Options for one worker."""
        return self.options.with_values(**changes)
