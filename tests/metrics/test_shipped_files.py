"""The dashboard for Grafana and the alert rules name metrics that exist, and their expressions parse."""

from __future__ import annotations

import json
import re
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from click.testing import CliRunner

from docs.blocks import ROOT
from graphile_worker.cli.commands.exporter import exporter_command
from graphile_worker.metrics.catalogue import ALL_METRICS, OUTCOMES
from graphile_worker.metrics.grafana import dashboard_text
from support.programs import needed

DASHBOARD: dict[str, Any] = json.loads(dashboard_text())
ALERTS = files("graphile_worker.metrics").joinpath("alerts.yml").read_text("utf-8")
RULES: list[dict[str, Any]] = yaml.safe_load(ALERTS)["groups"][0]["rules"]
NAMES = {metric.full_name for metric in ALL_METRICS} | {
    f"{metric.full_name}_{part}"
    for metric in ALL_METRICS
    if metric.kind == "histogram"
    for part in ("bucket", "sum", "count")
}
PAGE = (ROOT / "docs" / "observability" / "prometheus.md").read_text()
UNITS = {"bool", "bytes", "ops", "percentunit", "s", "short"}
"""As Grafana calls them."""
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = {
    **{
        f"{panel['title']} {target['refId']}": target["expr"].replace("$__rate_interval", "5m")
        for panel in PANELS
        for target in panel["targets"]
    },
    **{rule["alert"]: rule["expr"] for rule in RULES},
}


@pytest.mark.parametrize("title", EXPRESSIONS)
def test_every_expression_parses_and_names_metrics_that_exist(title: str) -> None:
    expression = EXPRESSIONS[title]
    promql_parser.parse(expression)
    named = set(re.findall(r"graphile_worker_\w+", expression))
    assert named
    assert named <= NAMES


def test_the_dashboard_shows_every_metric() -> None:
    shown = {name for text in EXPRESSIONS.values() for name in re.findall(r"graphile_worker_\w+", text)}
    shown = {re.sub("_(bucket|sum|count)$", "", name) for name in shown}
    flags = {"graphile_worker_ready_jobs_is_capped", "graphile_worker_jobs_is_estimate"}
    time = {"graphile_worker_exporter_last_success_timestamp_seconds"}
    assert {metric.full_name for metric in ALL_METRICS} - shown == flags | time


def test_the_dashboard_can_be_imported() -> None:
    assert [variable["name"] for variable in DASHBOARD["templating"]["list"]] == [
        "datasource",
        "schema",
        "task",
    ]
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert rows == ["Overview", "Tasks", "Workers", "Database"]
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    for panel in PANELS:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        assert panel["description"]
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}


def test_the_page_about_prometheus_names_metrics_outcomes_and_alerts_that_exist() -> None:
    expressions = re.findall(r"^\| .* \| `(.*graphile_worker_.*)` \|$", PAGE, re.MULTILINE)
    assert len(expressions) >= 5
    for expression in expressions:
        promql_parser.parse(expression)
    assert set(re.findall(r"graphile_worker_\w+", PAGE)) <= NAMES
    assert re.findall(r"^\| `(GraphileWorker\w+)` \|", PAGE, re.MULTILINE) == [
        rule["alert"] for rule in RULES
    ]
    (outcomes,) = re.findall(r"`outcome` is (.*?)\. Times", PAGE, re.DOTALL)
    assert tuple(re.findall(r"`(\w+)`", outcomes)) == OUTCOMES


def test_the_command_prints_them() -> None:
    call = CliRunner().invoke
    assert call(exporter_command, ["--dashboard"]).output == dashboard_text()
    assert call(exporter_command, ["--alerts"]).output == ALERTS


def test_the_command_prints_the_gauges_once(database_url: str) -> None:
    printed = CliRunner().invoke(exporter_command, ["-c", database_url, "--queue", "mail", "--json"])
    found = json.loads(printed.output)
    assert found["ready_jobs"] == [{"labels": {}, "value": 0}]
    assert found["queue_jobs"] == [{"labels": {"queue": "mail"}, "value": 0}]
    assert {f"graphile_worker_{name}" for name in found} <= NAMES


def series(name: str, values: str) -> dict[str, str]:
    return {"series": f"graphile_worker_{name}", "values": values}


FIRES: dict[str, tuple[list[dict[str, str]], str]] = {
    "GraphileWorkerJobsWaitTooLong": ([series("oldest_ready_job_age_seconds", "301+0x20")], "10m"),
    "GraphileWorkerJobsFail": (
        [series('jobs_total{task="mail",outcome="failed"}', "0+1x60")],
        "40m",
    ),
    "GraphileWorkerManyErrors": (
        [
            series('jobs_total{task="mail",outcome="error"}', "0+3x60"),
            series('jobs_total{task="mail",outcome="success"}', "0+7x60"),
        ],
        "40m",
    ),
    "GraphileWorkerNoWorkers": (
        [series("ready_jobs", "7+0x20"), series('workers{state="alive"}', "0+0x20")],
        "10m",
    ),
    "GraphileWorkerExporterDown": ([series("exporter_up", "0+0x20")], "10m"),
    "GraphileWorkerNotListening": ([series('listening{instance="a"}', "0+0x20")], "10m"),
    "GraphileWorkerDeadRows": ([series("jobs_dead_rows", "10000001+0x40")], "30m"),
    "GraphileWorkerCronSilent": (
        [series('cron_jobs_total{task="report"}', "0+1x600 600+0x200")],
        "750m",
    ),
}
QUIET = [
    series("oldest_ready_job_age_seconds", "3+0x900"),
    series('jobs_total{task="mail",outcome="failed"}', "1+0x900"),
    series('jobs_total{task="mail",outcome="error"}', "0+1x900"),
    series('jobs_total{task="mail",outcome="success"}', "0+9x900"),
    series("ready_jobs", "7+0x900"),
    series('workers{state="alive"}', "1+0x900"),
    series("exporter_up", "1+0x900"),
    series('listening{instance="a"}', "1+0x900"),
    series("jobs_dead_rows", "1000+0x900"),
    series('cron_jobs_total{task="report"}', "0+1x900"),
]


def test_alerts_fire_when_they_should_and_not_otherwise(tmp_path: Path) -> None:
    promtool = needed("promtool")
    assert set(FIRES) == {rule["alert"] for rule in RULES}
    (tmp_path / "alerts.yml").write_text(ALERTS)
    quiet = [{"eval_time": "800m", "alertname": name, "exp_alerts": []} for name in FIRES]
    assert _failures(promtool, tmp_path, QUIET, quiet) == ""
    for name, (found, at) in FIRES.items():  # promtool compares texts; here it matters only that it fires
        none = [{"eval_time": at, "alertname": name, "exp_alerts": []}]
        assert f"alertname: {name}" in _failures(promtool, tmp_path, found, none)


def _failures(promtool: str, folder: Path, found: list[dict[str, str]], expected: list[Any]) -> str:
    """What promtool says about these series and the alerts that are expected; nothing if they agree."""
    test = {"interval": "1m", "input_series": found, "alert_rule_test": expected}
    content = {"rule_files": ["alerts.yml"], "evaluation_interval": "1m", "tests": [test]}
    (folder / "test.yml").write_text(yaml.safe_dump(content))
    done = subprocess.run(
        [promtool, "test", "rules", "test.yml"], cwd=folder, capture_output=True, text=True, timeout=120
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr
