"""Figures of a benchmark, and how many samples become one of them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Jobs per second: the median of the rounds, and how far they lie apart."""

    jobs: int
    per_second: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, jobs: int, rates: Sequence[float]) -> Rate:
        """From the rate of each round."""
        return cls(jobs=jobs, per_second=median(rates), lowest=min(rates), highest=max(rates))


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """How fast waiting jobs are run."""

    name: str
    options: dict[str, Any]
    """The options of the worker that are not at their defaults."""
    processes: int
    rate: Rate
    cpu_microseconds_per_job: float
    """CPU time of the worker processes after start-up; the server's is not known here."""
    peak_memory_mb: float
    """Of the largest worker process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """The time from the call that adds a job to the task running, one job at a time."""

    name: str
    samples: int
    average_ms: float
    p50_ms: float
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, name: str, seconds: Sequence[float]) -> Latency:
        """From the time that each job took."""
        ordered = sorted(1000 * value for value in seconds)
        return cls(
            name=name,
            samples=len(ordered),
            average_ms=fmean(ordered),
            p50_ms=percentile(ordered, 0.50),
            p99_ms=percentile(ordered, 0.99),
            max_ms=ordered[-1],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Adding:
    """How fast jobs are added over one connection."""

    name: str
    rate: Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How fast ready jobs are run beside others that cannot run."""

    backlog: str
    size: int
    rate: Rate
    share: float
    """The rate as a share of the rate without a backlog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that was measured; a part that was not asked for is empty."""

    environment: dict[str, Any]
    throughput: list[Throughput] = field(default_factory=list)
    latency: list[Latency] = field(default_factory=list)
    adding: list[Adding] = field(default_factory=list)
    growth: list[Growth] = field(default_factory=list)


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest of the ordered values that this share of them does not exceed."""
    place = max(0, -(-len(ordered) * round(share * 1000) // 1000) - 1)  # rounded up, without float noise
    return ordered[place]
