"""The metrics: counters and durations of sending and processing, by task."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import Any

from opentelemetry.metrics import MeterProvider, Observation, get_meter_provider

from ...version import __version__
from .attributes import DESTINATION, ERROR_TYPE, OPERATION, SYSTEM

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Seconds; those that the conventions advise."""
_Labels = tuple[str | None, str | None]
"""Task and type of the error."""
_NOT_SET = {"NoOpMeterProvider", "_ProxyMeterProvider"}


class Instruments:
    """The instruments of one meter."""

    def __init__(self, provider: MeterProvider) -> None:
        meter = provider.get_meter("graphile_worker", __version__)
        # Counted here and read at each export, because the SDK takes far longer to count.
        self._sent: Counter[_Labels] = Counter()
        self._consumed: Counter[_Labels] = Counter()
        meter.create_observable_counter(
            "messaging.client.sent.messages",
            [lambda _: _observations("send", self._sent)],
            "{message}",
            "Jobs that were to be added.",
        )
        meter.create_observable_counter(
            "messaging.client.consumed.messages",
            [lambda _: _observations("process", self._consumed)],
            "{message}",
            "Jobs that were run.",
        )
        self._send_duration = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "How long it took to add jobs.",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )
        self._process_duration = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "How long jobs ran.",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )

    def sent(self, task: str | None, count: int, seconds: float, error: str | None) -> None:
        """Count one add."""
        self._sent[task, error] += count
        self._send_duration.record(seconds, _labels("send", task, error))

    def processed(self, task: str, seconds: float, error: str | None) -> None:
        """Count one run."""
        self._consumed[task, error] += 1
        self._process_duration.record(seconds, _labels("process", task, error))


def instruments_of(provider: MeterProvider | None) -> Instruments | None:
    """The instruments; None if the program has set no provider, so that metrics cost nothing."""
    chosen = provider if provider is not None else get_meter_provider()
    return None if type(chosen).__name__ in _NOT_SET else Instruments(chosen)


def _observations(operation: str, counts: Counter[_Labels]) -> list[Observation]:
    found = list(counts.items())  # in the thread of the exporter
    return [Observation(count, _labels(operation, task, error)) for (task, error), count in found]


@lru_cache(maxsize=4096)
def _labels(operation: str, task: str | None, error: str | None) -> dict[str, Any]:
    found = {SYSTEM: "graphile_worker", OPERATION: operation}
    if task is not None:
        found[DESTINATION] = task
    if error is not None:
        found[ERROR_TYPE] = error
    return found
