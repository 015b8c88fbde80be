"""Tags: labels of a job for filters, metrics and the dashboard."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from admin.conftest import client_of
from graphile_worker import JobSpec, make_worker_utils, task
from graphile_worker.admin import admin_app, everyone_may
from graphile_worker.contrib.prometheus import PrometheusPlugin
from graphile_worker.errors import InvalidArgumentError
from graphile_worker.options import JobFilter
from graphile_worker.runner import run_once
from support.command_line import Call, in_this_process


async def _added(database_url: str) -> None:
    async with make_worker_utils(connection_string=database_url) as utils:
        await utils.add_job("mail", {}, tags=["gold", "eu"])
        await utils.add_job("mail", {}, tags=["silver"])
        await utils.add_job("mail", {}, flags=["gold"])


def test_tags_are_flags_that_replace_earlier_ones() -> None:
    spec = JobSpec("t", tags=["a", "b", "a"], flags=["slow"])
    assert spec.flags == ("slow", "py:tag=a", "py:tag=b")
    assert spec.replace(tags=["c"]).flags == ("slow", "py:tag=c")
    assert spec.replace(tags=[]).flags == ("slow",)

    @task(tags=["a"])
    async def tagged() -> None: ...

    assert tagged.spec(None).flags == ("py:tag=a",)
    assert tagged.spec(None, tags=["b"]).flags == ("py:tag=b",)


@pytest.mark.parametrize("wrong", ["gold", [1], [""], ["x" * 101], ["a\0"]])
def test_a_wrong_tag_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="tags"):
        JobSpec("t", tags=wrong)


async def test_jobs_are_found_by_their_tags(database_url: str) -> None:
    await _added(database_url)
    async with make_worker_utils(connection_string=database_url) as utils:
        (found,) = await utils.jobs.list(JobFilter(tag="gold"))
        assert found.tags == ["eu", "gold"]
        assert await utils.jobs.list(JobFilter(tag="bronze")) == []
    with pytest.raises(InvalidArgumentError, match="cannot be combined with flag"):
        JobFilter(tag="gold", flag="slow")


def test_the_command_line_finds_them(
    database_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    call: Call = in_this_process(capsys, monkeypatch)
    added = call("-c", database_url, "add", "mail", "--tag", "gold", "--json").check().json
    call("-c", database_url, "add", "mail").check()
    (found,) = call("-c", database_url, "list", "--tag", "gold", "--json").check().json
    assert found["id"] == added["id"]


async def test_the_dashboard_shows_them_and_finds_their_jobs(database_url: str) -> None:
    await _added(database_url)
    app = admin_app(connection_string=database_url, authorize=everyone_may)
    try:
        async with client_of(app) as http:
            answer: httpx.Response = await http.get("/api/v1/jobs", params={"tag": "gold"})
            (job,) = answer.json()["items"]
            page = (await http.get(f"/jobs/{job['id']}")).text
            found = (await http.get("/jobs", params={"q": "tag:silver"})).text
    finally:
        await app.aclose()
    assert "#gold</a>" in page
    assert "/jobs?tag=gold" in page
    assert "#silver</a>" in found
    assert "#gold</a>" not in found


async def test_a_metric_counts_them(database_url: str) -> None:
    await _added(database_url)
    registry = CollectorRegistry()

    @task
    async def mail(payload: object) -> None: ...

    await run_once(
        connection_string=database_url, task_list=[mail], plugins=[PrometheusPlugin(registry=registry)]
    )
    text = generate_latest(registry).decode()
    lines = [line for line in text.splitlines() if line.startswith("graphile_worker_tagged_jobs_total")]
    assert sorted(lines) == [
        'graphile_worker_tagged_jobs_total{outcome="success",tag="eu"} 1.0',
        'graphile_worker_tagged_jobs_total{outcome="success",tag="gold"} 1.0',
        'graphile_worker_tagged_jobs_total{outcome="success",tag="silver"} 1.0',
    ]
