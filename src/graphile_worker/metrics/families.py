"""Metrics as plain values, and as text for Prometheus.

Families of metrics as plain values, which worker processes send to the process that serves all of them.

Counters and histograms of all processes are added up. Gauges of this package know how they are merged; those
of the application get the label `pid`. What a process counted stays when it ends; its gauges vanish.

Reads the registry of a process as plain values, and writes such values as text for Prometheus.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from .catalogue import ALL_METRICS
from .client_library import ClientMetric, CollectorRegistry, rendered

ADDED_UP = ("counter", "histogram", "summary")
MERGED = {metric.full_name: metric.merge for metric in ALL_METRICS if metric.kind == "gauge"}

Labels = tuple[tuple[str, str], ...]


class SampleValue(msgspec.Struct, array_like=True):
    """One value, with the name that Prometheus shows and its labels."""

    name: str
    labels: Labels
    value: float


class Family(msgspec.Struct):
    """One metric with all of its values."""

    name: str
    kind: str
    help: str
    samples: list[SampleValue]


def add_up(parts: Mapping[int, Sequence[Family]], ended: Iterable[Family] = ()) -> list[Family]:
    """The families of all processes, by process id; `ended`: what processes that are gone have counted."""
    merged: dict[tuple[str, str], _Merged] = {}
    for family in ended:
        merged.setdefault((family.name, family.kind), _Merged(family)).add(family, None)
    for pid, families in parts.items():
        for family in families:
            merged.setdefault((family.name, family.kind), _Merged(family)).add(family, pid)
    return [found.family() for found in merged.values()]


def counted(families: Sequence[Family]) -> list[Family]:
    """Those whose values stay when their process ends."""
    return [family for family in families if family.kind in ADDED_UP]


class _Merged:
    def __init__(self, first: Family) -> None:
        self._first = first
        self._values: dict[tuple[str, Labels], float] = {}

    def add(self, family: Family, pid: int | None) -> None:
        how = "sum" if family.kind in ADDED_UP else MERGED.get(family.name)
        for sample in family.samples:
            labels = sample.labels
            if how is None and pid is not None:
                labels = (*labels, ("pid", str(pid)))
            key = (sample.name, labels)
            known = self._values.get(key)
            if known is None:
                self._values[key] = sample.value
            elif how == "min" or sample.name.endswith("_created"):
                self._values[key] = min(known, sample.value)
            elif how == "sum":
                self._values[key] = known + sample.value
            else:
                self._values[key] = max(known, sample.value)

    def family(self) -> Family:
        first = self._first
        samples = [SampleValue(name, labels, value) for (name, labels), value in self._values.items()]
        return Family(first.name, first.kind, first.help, samples)


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
