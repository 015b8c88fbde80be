"""The dashboard for Grafana, built from the rows and panels of the catalogue."""

from __future__ import annotations

import json
from typing import Any

from .catalogue import DASHBOARD, INFO, JOBS, Metric, Panel, PanelRow, Query

COLUMNS = 24
HEIGHTS = {"stat": 5, "timeseries": 8}
OPTIONS: dict[str, dict[str, Any]] = {
    "stat": {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "area"},
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom"},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
}
UNITS = {"": "short", "seconds": "s"}
"""Grafana's names of units, where they differ from ours."""
QUANTILE = 0.95
OF_SCHEMA = f'and on (instance, job) {INFO.full_name}{{schema=~"$schema"}}'
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboard_text() -> str:
    """The JSON that is imported in Grafana."""
    return json.dumps(dashboard(), indent=1) + "\n"


def dashboard() -> dict[str, Any]:
    return {
        "title": "Graphile Worker",
        "uid": "graphile-worker",
        "tags": ["graphile-worker"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "templating": {
            "list": [
                {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
                _variable("schema", "Schema", INFO, {}),
                _variable("task", "Task", JOBS, {"allValue": ".*"}),
            ]
        },
        "annotations": {"list": []},
        "panels": _panels(),
    }


def expression(query: Query) -> str:
    """The query in PromQL, of the chosen schemas and tasks."""
    metric = query.metric
    conditions = [query.only] if query.only else []
    if "task" in metric.labels and not query.of_all_tasks:
        conditions.insert(0, 'task=~"$task"')
    series = metric.full_name + ("_bucket" if metric.kind == "histogram" else "")
    if conditions:
        series += f"{{{','.join(conditions)}}}"
    if query.increase:
        series = f"increase({series}[{query.increase}])"
    elif metric.kind != "gauge":
        series = f"rate({series}[$__rate_interval])"
    labels = ("le", *query.by) if metric.kind == "histogram" else query.by
    by = f" by ({', '.join(labels)}) " if labels else ""
    found = f"{query.reduce}{by}({series} {OF_SCHEMA})"
    if metric.kind == "histogram":
        found = f"histogram_quantile({QUANTILE}, {found})"
    if query.top:
        found = f"topk({query.top}, {found})"
    return found if query.share_of is None else f"{found} / {expression(query.share_of)}"


def unit_of(query: Query) -> str:
    """The unit of its values, as Grafana calls it."""
    if query.share_of is not None:
        return "percentunit"
    if query.metric.kind == "counter" and not query.increase:
        return "percentunit" if query.metric.unit == "seconds" else "ops"
    return UNITS.get(query.metric.unit, query.metric.unit)


def _panels() -> list[dict[str, Any]]:
    """Rows and their panels, below and beside each other."""
    found: list[dict[str, Any]] = []
    y = 0
    for row in DASHBOARD:
        found.append(_row(row, len(found) + 1, y))
        y += 1
        for line in row.lines:
            width, height = COLUMNS // len(line), max(HEIGHTS[panel.kind] for panel in line)
            for number, panel in enumerate(line):
                place = {"h": height, "w": width, "x": number * width, "y": y}
                found.append(_panel(panel, len(found) + 1, place))
            y += height
    return found


def _row(row: PanelRow, id: int, y: int) -> dict[str, Any]:
    return {
        "id": id,
        "type": "row",
        "title": row.title,
        "collapsed": False,
        "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": y},
        "panels": [],
    }


def _panel(panel: Panel, id: int, place: dict[str, int]) -> dict[str, Any]:
    (unit,) = {unit_of(query) for query in panel.queries}
    defaults: dict[str, Any] = {"unit": unit, "min": 0}
    if panel.max is not None:
        defaults["max"] = panel.max
    if panel.thresholds:
        steps = [{"color": color, "value": value} for color, value in panel.thresholds]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    return {
        "id": id,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": [_target(query, chr(ord("A") + number)) for number, query in enumerate(panel.queries)],
        "options": OPTIONS[panel.kind],
    }


def _target(query: Query, letter: str) -> dict[str, Any]:
    legend = query.legend
    if legend is None:
        legend = " ".join(f"{{{{{label}}}}}" for label in query.by)
    return {"refId": letter, "expr": expression(query), "legendFormat": legend, "datasource": SOURCE}


def _variable(name: str, label: str, metric: Metric, more: dict[str, Any]) -> dict[str, Any]:
    """A choice of the values that a label has."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": f"label_values({metric.full_name}, {name})", "refId": name},
        "includeAll": True,
        "multi": True,
        **more,
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
        "sort": 1,
    }
