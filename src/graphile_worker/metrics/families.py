"""Families of metrics as plain values: of one process, of several added up, and as text.

Counters and histograms of all processes are added up. Gauges of this package know how they are merged; those
of the application get the label `pid`. What a process counted stays when it ends; its gauges vanish.

Nothing here needs the package prometheus_client.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from .catalogue import ALL_METRICS, PREFIX, Metric

ADDED_UP = ("counter", "histogram", "summary")
MERGED = {metric.full_name: metric.merge for metric in ALL_METRICS if metric.kind == "gauge"}

Labels = tuple[tuple[str, str], ...]


class SampleValue(msgspec.Struct, array_like=True):
    """One value, with the name that Prometheus shows and its labels."""

    name: str
    labels: Labels
    value: float


class Family(msgspec.Struct):
    """One metric with all of its values. A counter is called as its values are, without `_total`."""

    name: str
    kind: str
    help: str
    samples: list[SampleValue]


def family(
    metric: Metric, values: Iterable[tuple[Iterable[str], float]] = (), prefix: str = PREFIX
) -> Family:
    """A metric with values, each with the values of its labels; for a histogram, add the samples."""
    name = f"{prefix}_{metric.name}"
    samples = [
        SampleValue(name, tuple(zip(metric.labels, labels, strict=True)), value) for labels, value in values
    ]
    return Family(name.removesuffix("_total"), metric.kind, metric.help, samples)


def single(metric: Metric, value: float, *labels: str) -> Family:
    """A metric with one value."""
    return family(metric, [(labels, value)])


def labelled(families: Iterable[Family], labels: Mapping[str, str]) -> list[Family]:
    """The same families with more labels, which come first."""
    more = tuple(labels.items())
    return [
        Family(
            each.name,
            each.kind,
            each.help,
            [SampleValue(sample.name, more + sample.labels, sample.value) for sample in each.samples],
        )
        for each in families
    ]


def gauges_as_text(gauges: Iterable[Family]) -> str:
    """The text that Prometheus reads, families of one name together."""
    merged: dict[str, list[Family]] = {}
    for each in gauges:
        merged.setdefault(each.name, []).append(each)
    lines: list[str] = []
    for name, same in merged.items():
        lines += (f"# HELP {name} {same[0].help}", f"# TYPE {name} {same[0].kind}")
        lines += (
            f"{name}{_label_text(sample.labels)} {sample.value:.10g}"
            for each in same
            for sample in each.samples
        )
    return "\n".join(lines) + "\n"


def _label_text(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


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
