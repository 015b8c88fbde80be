"""Bounds the values of the label `task`: every value is a time series that Prometheus keeps."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from .catalogue import OTHER

T = TypeVar("T")

logger = logging.getLogger("graphile_worker.metrics")


class ByTask(dict[str, T], Generic[T]):
    """Something for each task, and one for all tasks beyond the bound. Use `found[name]`."""

    def __init__(self, make: Callable[[], T], max_tasks: int) -> None:
        super().__init__()
        self._make = make
        self._max_tasks = max_tasks

    def __missing__(self, name: str) -> T:
        if len(self) >= self._max_tasks:
            if OTHER not in self:
                logger.warning(
                    "there are more than %d tasks; the metrics of further ones have the label task=%r",
                    self._max_tasks,
                    OTHER,
                )
                self[OTHER] = self._make()
            return self[OTHER]
        made = self[name] = self._make()
        return made
