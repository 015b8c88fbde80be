"""Reads the registry of a process as plain values, and writes such values as text for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .client_library import ClientMetric, CollectorRegistry, rendered
from .families import Family, SampleValue


def families_of(registry: CollectorRegistry) -> list[Family]:
    """Everything in the registry, also the metrics of the application."""
    return [
        Family(
            metric.name,
            metric.type,
            metric.documentation,
            [
                SampleValue(sample.name, tuple(sample.labels.items()), float(sample.value))
                for sample in metric.samples
            ],
        )
        for metric in registry.collect()
    ]


def text_of(families: Sequence[Family]) -> bytes:
    """The text that Prometheus reads."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Fixed(families))
    return rendered(registry)


class _Fixed:
    """A collector of values that are known already."""

    def __init__(self, families: Sequence[Family]) -> None:
        self._families = families

    def describe(self) -> Sequence[ClientMetric]:
        return []

    def collect(self) -> Iterator[ClientMetric]:
        for family in self._families:
            metric = ClientMetric(family.name, family.help, family.kind)
            for sample in family.samples:
                metric.add_sample(sample.name, dict(sample.labels), sample.value)
            yield metric
