"""What the samples of a soak say: does memory, a descriptor, a connection or a table grow? Pure.

The first third of the run fills caches, pools and free space, so it counts for nothing. What the second third
needed must be enough for the last one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

MEMORY_TOLERANCE = 0.05
"""How much more memory a worker may use in the last third than in the second, on average."""
SPARE = 1
"""Each worker's pool opens a connection now and then and closes one that is idle; a leak goes on."""
SIZE_TOLERANCE = 0.10
"""A vacuum comes a little earlier or later."""
SIZE_SLACK = 256 * 1024
"""Bytes: growing by a few pages is no growth of a small table."""
BYTES_OF_A_WAITING_JOB = 1024
"""What a job that waits may need in the table and its indexes."""
FEWEST_SAMPLES = 6
OF_A_DAY = re.compile(r"_\d{8}$")
"""The name of a partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look at everything."""

    seconds: float
    """Since the load began."""
    memory: Mapping[str, int]
    """Resident bytes of each worker process, by its name."""
    descriptors: Mapping[str, int]
    """Open file descriptors of each worker process."""
    connections: int
    """Connections of all workers that the server has."""
    sizes: Mapping[str, int]
    """Bytes of each table with its indexes."""
    dead_rows: Mapping[str, int]
    """Rows of each table that wait for a vacuum."""
    waiting: int
    """Jobs in the table, whatever their state."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure in the second and in the last third, and whether the difference is allowed."""

    what: str
    second: float
    last: float
    limit: float

    @property
    def is_fine(self) -> bool:
        return self.last <= self.limit

    @property
    def change(self) -> float:
        """The growth as a share of what was there."""
        return (self.last - self.second) / self.second if self.second else float(self.last > 0)


def judge(samples: Sequence[Sample]) -> list[Comparison]:
    """Every comparison of the last third with the second; the soak passed if all of them are fine."""
    if len(samples) < FEWEST_SAMPLES:
        raise ValueError(f"{len(samples)} samples say nothing; at least {FEWEST_SAMPLES} are needed")
    third = len(samples) // 3
    second, last = samples[-2 * third : -third], samples[-third:]
    return [*_memory(second, last), *_handles(second, last), *_sizes(second, last)]


def passed(comparisons: Sequence[Comparison]) -> bool:
    """Whether nothing grew that should not."""
    return all(comparison.is_fine for comparison in comparisons)


def _memory(second: Sequence[Sample], last: Sequence[Sample]) -> Iterator[Comparison]:
    for name in last[-1].memory:
        before, after = _means(second, last, lambda sample, name=name: sample.memory[name])  # type: ignore[misc]
        yield Comparison(f"memory of {name}", before, after, before * (1 + MEMORY_TOLERANCE))


def _handles(second: Sequence[Sample], last: Sequence[Sample]) -> Iterator[Comparison]:
    before, after = _means(second, last, lambda sample: sample.connections)
    yield Comparison("connections", before, after, before + SPARE * len(last[-1].memory))
    for name in last[-1].descriptors:
        before, after = _means(second, last, lambda sample, name=name: sample.descriptors[name])  # type: ignore[misc]
        yield Comparison(f"descriptors of {name}", before, after, before + SPARE)


def _sizes(second: Sequence[Sample], last: Sequence[Sample]) -> Iterator[Comparison]:
    """The largest sizes, because a table grows to what it needs at worst and is reused from then on.

    Not those of a partition, which keeps the errors or the history of a day until it is dropped as a whole.
    """
    waiting = max(sample.waiting for sample in last) - max(sample.waiting for sample in second)
    for name in last[-1].sizes:
        if OF_A_DAY.search(name):
            continue
        before = max(sample.sizes[name] for sample in second)
        after = max(sample.sizes[name] for sample in last)
        limit = before * (1 + SIZE_TOLERANCE) + SIZE_SLACK
        if name == "_private_jobs":
            limit += max(0, waiting) * BYTES_OF_A_WAITING_JOB
        yield Comparison(f"size of {name}", before, after, limit)


def _means(
    second: Sequence[Sample], last: Sequence[Sample], figure: Callable[[Sample], float]
) -> tuple[float, float]:
    return fmean(map(figure, second)), fmean(map(figure, last))
