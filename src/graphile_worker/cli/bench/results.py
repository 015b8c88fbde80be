"""Results of a benchmark, and the statistics behind them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Jobs per second: the median of the rounds, and their range."""

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
    """The rate of running jobs."""

    name: str
    options: dict[str, Any]
    """Worker options that differ from their defaults."""
    processes: int
    rate: Rate
    cpu_microseconds_per_job: float
    """CPU time of the worker processes after start-up, without that of the server."""
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
        """From the latency of each job in seconds."""
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
    """The rate of adding jobs over one connection."""

    name: str
    rate: Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """The rate of running ready jobs beside a backlog that cannot run."""

    backlog: str
    size: int
    rate: Rate
    share: float
    """The rate relative to that without a backlog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchReport:
    """All results; parts that were not chosen are empty."""

    environment: dict[str, Any]
    throughput: list[Throughput] = field(default_factory=list)
    latency: list[Latency] = field(default_factory=list)
    adding: list[Adding] = field(default_factory=list)
    growth: list[Growth] = field(default_factory=list)


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest ordered value that is at least as large as this share of the values."""
    index = max(0, -(-len(ordered) * round(share * 1000) // 1000) - 1)  # rounded up, without float noise
    return ordered[index]
