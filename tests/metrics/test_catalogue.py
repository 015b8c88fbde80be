"""What is exported, shown and documented are the metrics of the catalogue."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from docs.blocks import ROOT
from graphile_worker.metrics.catalogue import (
    ALL_METRICS,
    DURATION,
    FETCHED,
    INSTRUMENTS,
    WAIT,
    WORKER_METRICS,
    Metric,
)
from graphile_worker.metrics.counts import TOTALS, WorkerCounts
from graphile_worker.metrics.families import family, gauges_as_text

OPENTELEMETRY = ROOT / "docs" / "observability" / "opentelemetry.md"


def _counts() -> WorkerCounts:
    return WorkerCounts(duration_buckets=DURATION.buckets, wait_buckets=WAIT.buckets, max_tasks=200)


def test_names_are_unique_and_tell_the_kind_and_the_unit() -> None:
    names = [metric.name for metric in (*ALL_METRICS, *INSTRUMENTS)]
    assert len(set(names)) == len(names)
    for metric in ALL_METRICS:
        assert (metric.kind == "counter") == metric.name.endswith("_total")
        assert (metric.kind == "histogram") == bool(metric.buckets)
        assert (metric.unit in ("seconds", "bytes")) == bool(
            re.search("_(seconds|bytes)(_total)?$", metric.name)
        )


def test_a_worker_process_exports_every_metric_that_is_declared_for_it() -> None:
    exported = list(_counts().families())
    assert exported
    assert [(each.name, each.kind, each.help) for each in exported] == [
        (metric.full_name.removesuffix("_total"), metric.kind, metric.help) for metric in WORKER_METRICS
    ]


@pytest.mark.parametrize("metric", TOTALS, ids=lambda metric: metric.name)
def test_a_declared_counter_needs_nothing_but_a_place_that_counts(metric: Metric) -> None:
    counts = _counts()
    own = tuple(label for label in metric.labels if label not in ("task", "tag"))
    assert len(own) <= 1
    task = "mail" if metric.labels[:1] in (("task",), ("tag",)) else ""
    counts.totals[metric.name][task]["own" if own else ""] += 2
    if not task:
        counts.add(metric, 0.5, "own" if own else "")
    (exported,) = (each for each in counts.families() if each.name == metric.full_name.removesuffix("_total"))
    values = {sample.labels: sample.value for sample in exported.samples}
    labels = tuple(zip(metric.labels, filter(None, (task, *("own" for _ in own))), strict=True))
    assert values.pop(labels) == (2 if task else 2.5)
    assert set(values.values()) <= {0}


def test_a_metric_has_the_labels_that_are_declared() -> None:
    with pytest.raises(ValueError, match="zip"):
        family(FETCHED, [(("mail",), 1)])


def test_text_escapes_what_labels_contain() -> None:
    metric = Metric("things", "gauge", "Things.", ("name",))
    assert gauges_as_text([family(metric, [(['a "b"\n\\'], 1.5)]), family(metric, [(["c"], 2)])]) == (
        "# HELP graphile_worker_things Things.\n"
        "# TYPE graphile_worker_things gauge\n"
        'graphile_worker_things{name="a \\"b\\"\\n\\\\"} 1.5\n'
        'graphile_worker_things{name="c"} 2\n'
    )


def test_the_page_about_opentelemetry_names_every_instrument() -> None:
    section = OPENTELEMETRY.read_text().partition("### Metrics")[2].partition("\n## ")[0]
    assert set(re.findall(r"`(messaging\.[\w.]+)`", section)) == {metric.name for metric in INSTRUMENTS}


def test_only_what_serves_a_registry_needs_the_client_library() -> None:
    program = (
        "import sys; sys.modules['prometheus_client'] = None; import importlib\n"
        "for name in ('catalogue', 'grafana', 'families', 'counts', 'database_reader', 'minutes'):\n"
        "    importlib.import_module('graphile_worker.metrics.' + name)\n"
        "import graphile_worker.contrib.opentelemetry\n"
        "import graphile_worker.runner.process.reports\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
