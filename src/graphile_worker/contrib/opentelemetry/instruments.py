"""The metrics: counters and durations of sending and processing, by task."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from opentelemetry.metrics import MeterProvider, get_meter_provider

from ...version import __version__
from .attributes import DESTINATION, ERROR_TYPE, OPERATION, SYSTEM

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Seconds; those that the conventions advise."""
_NOT_SET = {"NoOpMeterProvider", "_ProxyMeterProvider"}


class Instruments:
    """The instruments of one meter."""

    def __init__(self, provider: MeterProvider) -> None:
        meter = provider.get_meter("graphile_worker", __version__)
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Jobs that were to be added."
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Jobs that were run."
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
        labels = _labels("send", task, error)
        self._sent.add(count, labels)
        self._send_duration.record(seconds, labels)

    def processed(self, task: str, seconds: float, error: str | None) -> None:
        """Count one run."""
        labels = _labels("process", task, error)
        self._consumed.add(1, labels)
        self._process_duration.record(seconds, labels)


def instruments_of(provider: MeterProvider | None) -> Instruments | None:
    """The instruments; None if the program has set no provider, so that metrics cost nothing."""
    chosen = provider if provider is not None else get_meter_provider()
    return None if type(chosen).__name__ in _NOT_SET else Instruments(chosen)


@lru_cache(maxsize=4096)
def _labels(operation: str, task: str | None, error: str | None) -> dict[str, Any]:
    found = {SYSTEM: "graphile_worker", OPERATION: operation}
    if task is not None:
        found[DESTINATION] = task
    if error is not None:
        found[ERROR_TYPE] = error
    return found
