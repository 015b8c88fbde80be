"""Overview: the sentence, the statistics, the charts, the summary, the metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import httpx
import pytest

from admin.callers import drop_own_tables
from admin.conftest import client_of
from graphile_worker import JobSpec, WorkerUtils, run_once
from graphile_worker.admin import AdminApp, Identity, admin_app, everyone_may
from graphile_worker.admin.live.hub import hubs_of
from graphile_worker.admin.tasks.series import RANGES
from graphile_worker.metrics.catalogue import DASHBOARD_METRICS
from graphile_worker.metrics.minutes import MinuteStatistics, TaskTotals, write_minutes
from graphile_worker.values.schema_name import SchemaName
from support.working import SCHEMA, Gate, Jobs, Workers, until

NAME = SchemaName()
OTHERS = 'data-name="other runtimes"'
ATTACK = "<script>alert(1)</script>`'\"{{7*7}}"


class Past:
    """What happened in the last hours, written as workers would have written it."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.now = datetime.now(UTC)

    async def statistics(self, task: str, *, completed: int, failed: int, minutes: range) -> None:
        """The same statistics in each of these minutes ago."""
        rows = []
        for ago in minutes:
            totals = TaskTotals()
            totals.completed, totals.failed = completed, failed
            totals.run_seconds, totals.longest = float(completed + failed), 2.0
            totals.run_times[13] = totals.wait_times[10] = completed + failed
            moment = int((self.now - timedelta(minutes=ago)).timestamp()) // 60 * 60
            rows.append(MinuteStatistics(moment, task, totals))
        await write_minutes(self.connection, NAME, "pool-1", rows)

    async def samples(self, *, hours: int = 2, added: int = 20, deleted: int = 20, ready: int = 3) -> None:
        """One every ten seconds, in which the table changed at the same rate."""
        await self.connection.execute(
            f"""
            insert into {SCHEMA}._private_py_samples
            select now() - n * interval '10 s', ($2 * 360 - n)::bigint * $3::bigint / 6,
              ($2 * 360 - n)::bigint * $4::bigint / 6, ($2 * 360 - n)::bigint * $4::bigint / 6,
              $1, $1, 0, 0, false, 1
            from generate_series(1, $2 * 360) as n
            """,
            ready, hours, added, deleted,
        )  # fmt: skip

    async def group(self, task: str, *, message: str = "Connection refused", ago: int = 10) -> None:
        """A group of errors that began some minutes ago."""
        task_id = await self.connection.fetchval(
            f"insert into {SCHEMA}._private_py_task_names (id, identifier) values (901, $1) "
            "on conflict (id) do update set identifier = excluded.identifier returning id",
            task,
        )
        await self.connection.execute(
            f"insert into {SCHEMA}._private_py_error_groups values "
            "('abc123', $1, 'OSError', $2, 'shop.py in send', now() - $3 * interval '1 minute', now(), 40, 4,"
            " 7, '1.4.2', '1.4.2')",
            task_id, message, ago,
        )  # fmt: skip


@pytest.fixture
async def past(connection: Any) -> Past:
    return Past(connection)


async def test_an_empty_database_is_no_alarm(http: httpx.AsyncClient) -> None:
    found = (await http.get("/api/v1/overview")).json()
    assert found["level"] == "idle"
    assert found["findings"][0]["title"] == "No worker has run yet"
    assert found["ready"] == {"value": 0, "kind": "exact"}
    assert found["cost"]["statements"] > 0
    for path in ("/", "/tasks", "/summary"):
        assert (await http.get(path)).status_code == 200


async def test_failures_are_the_first_thing_that_is_said(http: httpx.AsyncClient, past: Past) -> None:
    await past.statistics("resize", completed=100, failed=0, minutes=range(1, 60))
    await past.statistics("send_email", completed=2, failed=0, minutes=range(15, 60))
    await past.statistics("send_email", completed=2, failed=8, minutes=range(1, 15))
    await past.samples()
    await past.group("send_email", ago=14)
    await past.connection.execute(
        f"insert into {SCHEMA}._private_py_deploys (version, started_at) "
        "values ('1.4.2', now() - interval '17 minutes')"
    )
    found = (await http.get("/api/v1/overview")).json()
    finding = found["findings"][0]
    assert finding["level"] == found["level"] == "bad"
    assert finding["title"].startswith("send_email: ")
    assert finding["title"].endswith("minutes, one error")
    began = datetime.fromisoformat(finding["since"])
    assert abs((past.now - timedelta(minutes=14) - began).total_seconds()) < 120
    assert "1.4.2 was deployed" in finding["detail"]
    assert finding["path"] == "/failures/abc123"
    page = (await http.get("/")).text
    assert "<h1>send_email: " in page
    assert "began at" in page
    assert "1.4.2 was deployed" in page  # a marker of the chart
    assert not any(part in page for part in ("style=", "onclick=", "javascript:"))
    assert (await http.get("/", headers={"Accept": "application/json"})).json()["level"] == "bad"


async def test_a_mass_failure_is_in_the_rate_at_once(http: httpx.AsyncClient, past: Past) -> None:
    """The number beside the finding: not only when the minute is over in which it began."""
    await past.statistics("send_email", completed=100, failed=2, minutes=range(2, 60))
    await past.statistics("send_email", completed=0, failed=3_000, minutes=range(0, 1))
    found = (await http.get("/api/v1/overview")).json()
    assert found["findings"][0]["title"].startswith("send_email: 3,")
    assert 3_000 / 7 < found["rates"]["failed"] < 3_000 / 5
    assert f'<span class="v">{found["rates"]["failed"]:,.0f} /min</span>' in (await http.get("/")).text


async def test_a_few_failures_that_have_just_happened_are_counted_once(
    http: httpx.AsyncClient, past: Past
) -> None:
    await past.statistics("send_email", completed=0, failed=8, minutes=range(0, 1))
    assert '<span class="v">8 in 1 h</span>' in (await http.get("/")).text


async def test_series_have_values_by_task_and_markers(
    http: httpx.AsyncClient, past: Past, utils: WorkerUtils
) -> None:
    await past.statistics("a", completed=6, failed=2, minutes=range(5, 20))
    await past.statistics("b", completed=1, failed=0, minutes=range(5, 20))
    await past.samples(added=90, deleted=60)
    await utils.pause(task="a", reason="test")
    query = {"metric": "completed,failed,run_p95,added,backlog", "by": "task", "range": "1h"}
    found = (await http.get("/api/v1/series", params=query)).json()
    assert (found["step"], found["is_recorded"]) == (60, True)
    assert len(found["points"]["a"]["completed"]) == 60
    assert sum(found["points"]["a"]["completed"]) == pytest.approx(90)
    assert sum(found["points"]["a"]["failed"]) == pytest.approx(30)
    assert max(value or 0 for value in found["points"]["b"]["run_p95"]) == pytest.approx(1, rel=0.1)
    assert found["points"]["all"]["backlog"][30] == 3
    assert found["points"]["all"]["added"][30] == pytest.approx(90, rel=0.2)
    together = (await http.get("/api/v1/series", params={"metric": "completed,oldest_wait"})).json()
    assert sum(together["points"]["all"]["completed"]) == pytest.approx(105)
    for ago in (90, 24 * 60):  # in an hour and in a day that are over
        await past.statistics("a", completed=6, failed=2, minutes=range(ago + 5, ago + 20))
    for name, range_ in RANGES.items():
        found = (await http.get("/api/v1/series", params={"range": name, "by": "task"})).json()
        assert len(found["points"]["a"]["completed"]) == range_.count, name
        minutes = range_.step / 60
        if name != "15m":
            assert sum(found["points"]["a"]["completed"]) * minutes >= 89, name
    for bad in ({"metric": "x"}, {"range": "2y"}, {"metric": ","}):
        assert (await http.get("/api/v1/series", params=bad)).status_code == 400


async def test_other_runtimes_are_the_difference_between_samples_and_statistics(
    http: httpx.AsyncClient, past: Past
) -> None:
    await past.statistics("a", completed=10, failed=0, minutes=range(1, 60))
    await past.samples(added=10, deleted=10)
    assert OTHERS not in (await http.get("/")).text
    await past.connection.execute(f"delete from {SCHEMA}._private_py_samples")
    await past.samples(added=100, deleted=100)
    assert OTHERS in (await http.get("/?range=6h")).text


async def test_ready_jobs_without_a_worker_are_a_finding(
    http: httpx.AsyncClient, utils: WorkerUtils, past: Past
) -> None:
    await utils.add_jobs([JobSpec("task")] * 3)
    found = (await http.get("/api/v1/overview")).json()
    assert found["findings"][0]["title"] == "No worker is running, and 3 jobs are ready"


async def test_failures_of_the_current_minute_are_seen(
    http: httpx.AsyncClient, utils: WorkerUtils, past: Past, database_url: str
) -> None:
    """Never green while everything fails, also in the first minute; nor with a group that is known."""

    async def fail(payload: Any) -> None:
        raise ValueError("the bank is closed")

    await past.statistics("other", completed=100, failed=0, minutes=range(1, 60))
    await utils.add_jobs([JobSpec("charge", max_attempts=1)] * 200)
    await run_once(connection_string=database_url, task_list={"charge": fail})
    groups = f"{SCHEMA}._private_py_error_groups"
    await past.connection.execute(f"update {groups} set first_at = now() - interval '9 days'")
    found = (await http.get("/api/v1/overview")).json()
    assert found["level"] == "bad"
    titles = " ".join(each["title"] for each in found["findings"])
    assert "charge: 200 failures in" in titles
    assert "one error" in titles


async def test_no_worker_after_work_is_a_finding_everywhere(http: httpx.AsyncClient, past: Past) -> None:
    """On the overview, in the incident summary and in the doctor's check."""
    await past.statistics("resize", completed=300, failed=0, minutes=range(25, 60))
    found = (await http.get("/api/v1/overview")).json()["findings"][0]
    assert (found["level"], found["title"]) == ("bad", "No worker is running")
    assert "No worker is running" in (await http.get("/api/v1/summary")).text
    report = (await http.get("/api/v1/doctor")).json()
    workers = [each for each in report["findings"] if each["check"] == "workers"]
    assert [each["severity"] for each in workers] == ["warning"]
    assert "no Python worker is running" in workers[0]["summary"]


async def test_the_summary_counts_all_workers(http: httpx.AsyncClient, past: Past) -> None:
    await past.connection.execute(
        f"insert into {SCHEMA}._private_py_workers (id, host, pid, version, tasks, concurrency, liveness,"
        " heartbeat_interval, grace) select 'pool-' || n, 'h', n, '1', '{a}', 2, 'heartbeat',"
        " interval '1 hour', interval '1 hour' from generate_series(1, 20) n"
    )
    assert "- 20 workers alive" in (await http.get("/api/v1/summary")).text


async def reported(http: httpx.AsyncClient, admin: AdminApp) -> Any:
    """Overview, once the worker's heartbeat has said what it runs."""
    hub = hubs_of(admin).of(admin.databases[0])
    hub.interval = 0.0
    found: Any = None

    async def is_there() -> bool:
        nonlocal found
        hub._duration = 0.0
        found = (await http.get("/api/v1/overview")).json()
        return bool(found["running"]["value"] == 1 and found["longest"])

    await until(is_there, every=0.2)
    return found


async def test_running_jobs_and_workers_are_shown(
    http: httpx.AsyncClient, utils: WorkerUtils, workers: Workers, admin: AdminApp
) -> None:
    gate = Gate()
    await workers.start({"wait": gate}, concurrency=4)
    await utils.add_job("wait")
    await utils.add_job("unknown_one")
    await gate.until_inside(1)
    try:
        found = await reported(http, admin)
        assert found["slots"] == 4
        assert [worker["slots"] for worker in found["workers"]] == [4]
        assert 'aria-label="25% of the slots"' in (await http.get("/")).text
        rows = {task["name"]: task for task in (await http.get("/api/v1/tasks")).json()["items"]}
        assert rows["wait"]["workers"] == 1
        assert rows["wait"]["is_known"]
        assert rows["unknown_one"]["ready"] == {"value": 1, "kind": "exact"}
        page = await http.get("/task", params={"name": "wait"})
        assert page.status_code == 200
        assert "Running now" in page.text
    finally:
        gate.open()


async def test_a_task_is_paused_and_resumed_with_a_row_in_the_audit(
    http: httpx.AsyncClient, utils: WorkerUtils, connection: Any
) -> None:
    await utils.add_job("send & <b>")
    name = "send & <b>"
    answer = await http.post("/api/v1/tasks/pause", json={"name": name, "reason": "bank is down"})
    assert answer.status_code == 200, answer.text
    assert [pause.task_identifier for pause in await utils.queues.list_pauses()] == [name]
    page = (await http.get("/tasks", headers={"Accept": "text/html"})).text
    assert "send &amp; &lt;b&gt;" in page
    answer = await http.post("/tasks/resume", data={"name": name})
    assert answer.status_code == 303
    assert await utils.queues.list_pauses() == []
    form = await http.get("/tasks/pause", params={"name": name})
    assert "Node and Rust" in form.text
    answer = await http.post("/tasks/pause", data={"name": "", "period": "900", "reason": ""})
    assert answer.status_code == 303
    (pause,) = await utils.queues.list_pauses()
    assert pause.what == "every task"
    assert pause.until is not None
    answer = await http.post("/api/v1/tasks/resume", json={})
    assert answer.json() == {"was_paused": True}
    actions = await connection.fetch(
        f"select action, target, who from {SCHEMA}._private_py_audit order by id"
    )
    assert [tuple(row)[:2] for row in actions] == [
        ("pause_task", f"task {name}"),
        ("resume_task", f"task {name}"),
        ("pause_task", "every task"),
        ("resume_task", "every task"),
    ]


async def test_a_task_that_was_never_heard_of_is_not_found(http: httpx.AsyncClient) -> None:
    assert (await http.get("/task", params={"name": "nothing"})).status_code == 404
    assert (await http.get("/api/v1/task", params={"name": ATTACK})).status_code == 404
    assert (await http.get("/api/v1/task")).status_code == 400


async def test_names_are_escaped_everywhere(http: httpx.AsyncClient, past: Past, utils: WorkerUtils) -> None:
    await utils.add_job(ATTACK)
    await past.statistics(ATTACK, completed=1, failed=9, minutes=range(1, 30))
    await past.group(ATTACK, message=ATTACK)
    for path in ("/", "/?by=task", "/tasks", "/summary"):
        page = (await http.get(path)).text
        assert "<script>alert" not in page, path
    page = (await http.get("/task", params={"name": ATTACK})).text
    assert "<script>alert" not in page
    assert "&lt;script&gt;" in page
    markdown = (await http.get("/api/v1/summary")).text
    assert "\n`<script>" not in markdown
    for line in markdown.splitlines():
        assert line.replace("\\`", "").count("`") % 2 == 0, line


async def test_the_summary_says_what_failed_and_what_was_done(
    http: httpx.AsyncClient, past: Past, utils: WorkerUtils
) -> None:
    await past.statistics("send_email", completed=2, failed=8, minutes=range(1, 20))
    await past.group("send_email")
    await http.post("/api/v1/tasks/pause", json={"name": "send_email", "reason": "mail server"})
    answer = await http.get("/api/v1/summary", params={"hours": 6, "zone": "Europe/Berlin"})
    assert answer.headers["content-type"].startswith("text/markdown")
    text = answer.text
    assert text.startswith("# Job queue, ")
    assert "`send_email`: 152 failed attempts" in text
    assert "`OSError: Connection refused`" in text
    assert "pause task task send\\_email" in text or "pause task task send_email" in text
    assert "paused: task send_email" in text
    assert (await http.get("/api/v1/summary", params={"hours": 0})).status_code == 400


async def test_metrics_have_help_types_and_bounded_labels(database_url: str, utils: WorkerUtils) -> None:
    await utils.add_jobs([JobSpec(f"task_{number}") for number in range(210)])
    await utils.add_job("task_0", queue_name='a "quoted" queue')
    app = admin_app(connection_string=database_url, authorize=lambda _: None, metrics_token="secret-token")
    async with client_of(app) as client:
        assert (await client.get("/metrics")).status_code == 401
        answer = await client.get("/metrics", headers={"Authorization": "Bearer secret-token"})
    await app.aclose()
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert values["graphile_worker_ready_jobs"] == "211"
    assert values[r'graphile_worker_queue_jobs{queue="a \"quoted\" queue"}'] == "1"
    assert values["graphile_worker_exporter_up"] == "1"
    assert values['graphile_worker_workers{state="alive"}'] == "0"
    assert values['graphile_worker_jobs{task="other",state="ready"}'] == "10"
    names = {line.split("{")[0].split(" ")[0] for line in lines if not line.startswith("#")}
    for name in names:
        assert f"# TYPE {name} gauge" in lines
        assert any(line.startswith(f"# HELP {name} ") for line in lines)
    assert names == {metric.full_name for metric in DASHBOARD_METRICS}


async def test_a_viewer_may_look_and_not_pause(database_url: str) -> None:
    app = admin_app(connection_string=database_url, authorize=lambda _: Identity.with_role("eve", "viewer"))
    async with client_of(app) as client:
        assert (await client.get("/tasks")).status_code == 200
        assert "Pause every task" not in (await client.get("/tasks")).text
        assert (await client.post("/api/v1/tasks/pause", json={"name": "a"})).status_code == 403
    await app.aclose()


@pytest.fixture
async def foreign(database_url: str, utils: WorkerUtils) -> AsyncIterator[httpx.AsyncClient]:
    """A dashboard for a schema without any Python-only table, read by a role that may only read."""
    await utils.add_jobs([JobSpec("node_task")] * 5)
    connection = await asyncpg.connect(database_url)
    try:
        await drop_own_tables(connection)
    finally:
        await connection.close()
    app = admin_app(connection_string=database_url, authorize=everyone_may, read_only=True)
    async with client_of(app) as client:
        yield client
    await app.aclose()


async def test_a_schema_of_other_runtimes_says_what_is_missing(foreign: httpx.AsyncClient) -> None:
    found = (await foreign.get("/api/v1/overview")).json()
    assert found["ready"]["value"] == 5
    assert found["slots"] is None
    assert len(found["missing"]) == 4
    for path in ("/", "/?range=7d", "/tasks", "/task?name=node_task", "/summary", "/metrics"):
        answer = await foreign.get(path)
        assert answer.status_code == 200, path
    page = (await foreign.get("/")).text
    assert "Not recorded in this database" in page
    rows = (await foreign.get("/api/v1/tasks")).json()["items"]
    assert [(row["name"], row["ready"]["value"]) for row in rows] == [("node_task", 5)]
    assert (await foreign.get("/api/v1/series")).json()["is_recorded"] is False


async def test_the_last_values_stay_while_the_database_is_down(
    database_url: str, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = admin_app(connection_string=database_url, authorize=everyone_may)
    async with client_of(app) as client:
        await jobs.add("task")
        assert (await client.get("/")).status_code == 200

        def refuse(*_: object, **__: object) -> None:
            raise ConnectionRefusedError("down")

        monkeypatch.setattr(app.databases[0], "read", refuse)
        hub = hubs_of(app).of(app.databases[0])
        hub.interval = hub._duration = 0.0
        page = await client.get("/")
        assert page.status_code == 200
        assert "The database does not answer.</strong>" in page.text
        metrics = (await client.get("/metrics")).text
        assert "graphile_worker_exporter_up 0" in metrics.splitlines()
    monkeypatch.undo()
    await app.aclose()
