"""What workers say about their tasks: runbook, owner, and the payload that each expects."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import httpx
import pytest

from graphile_worker import task
from graphile_worker.admin.security.redact import Redactor
from graphile_worker.admin.tasks.expected import notes_of, problems_of
from graphile_worker.database.statements.inspection import MAX_SCHEMA_LENGTH, TaskDescription
from graphile_worker.errors import TaskLoadError
from graphile_worker.tasks.payload_schema import description_of
from support.working import SCHEMA, Jobs, Workers, until

API = "/api/v1"


@dataclass
class Line:
    sku: str
    count: int = 1


@dataclass
class Order:
    id: int
    lines: list[Line]
    channel: Literal["web", "shop"] = "web"
    note: str | None = None
    extra: dict[str, float] = field(default_factory=dict)


@task("ship", runbook="https://wiki.example/ship?a=1&b=2", owner="<b>logistics</b>")
async def ship(order: Order) -> None: ...


@task("plain")
async def plain(payload: Any) -> None: ...


async def test_pages_show_what_the_task_expects(
    http: httpx.AsyncClient, jobs: Jobs, workers: Workers
) -> None:
    runner = await workers.start([ship, plain], forbidden_flags=["slow", "eu"])
    job = await jobs.add("ship", {"id": 1, "lines": []}, flags=["slow"])
    for path in (f"/jobs/{job}", "/task?name=ship"):
        page = (await http.get(path)).text
        assert 'href="https://wiki.example/ship?a=1&amp;b=2"' in page, path
        assert "&lt;b&gt;logistics&lt;/b&gt;" in page, path
        assert "What the task expects" in page, path
        for part in ("list of Line", "whole number", "required", "sku"):
            assert part in page, (path, part)
    form = (await http.get("/jobs/new?task=ship")).text
    assert "What the task expects" in form
    assert "What the task expects" not in (await http.get("/jobs/new?task=plain")).text
    notes = (await http.get(f"{API}/task?name=ship")).json()["notes"]
    assert (notes["owner"], notes["payload_type"]) == ("<b>logistics</b>", "Order")
    assert notes["payload_schema"]["$defs"]["Line"]["required"] == ["sku"]
    assert (await http.get(f"{API}/task?name=plain")).json()["notes"] is None
    found = (await http.get(f"{API}/jobs/{job}/explanation")).json()
    assert (found["kind"], found["headline"]) == (
        "flags", "The worker with the task refuses the flag slow.",
    )  # fmt: skip
    await workers.stop(runner)
    assert "logistics" in (await http.get("/task?name=ship")).text, "it is kept while no worker runs"
    changed = task("ship")(ship.function)
    await workers.start([changed])

    async def is_read_again() -> bool:
        return "logistics" not in (await http.get("/task?name=ship")).text

    await until(is_read_again)


async def test_a_payload_that_does_not_fit_is_refused_unless_one_insists(
    http: httpx.AsyncClient, jobs: Jobs, workers: Workers
) -> None:
    await (await workers.start([ship])).stop()
    body: dict[str, Any] = {"task": "ship", "payload": {"id": "1"}}
    refused = await http.post(f"{API}/jobs", json=body)
    assert refused.status_code == 400, refused.text
    assert refused.json()["detail"] == "lines is missing. id must be a whole number, not a text."
    assert await jobs.all() == []
    form = {"task": "ship", "payload": '{"id": "1"}'}
    page = await http.post("/jobs/new", data=form)
    assert page.status_code == 400
    assert 'name="anyway"' in page.text
    assert (await http.post("/jobs/new", data={**form, "anyway": "yes"})).status_code == 303
    added = (await http.post(f"{API}/jobs", json={**body, "check": False})).json()
    change: dict[str, Any] = {"payload": {"id": 1}, "revision": added["revision"]}
    assert (await http.patch(f"{API}/jobs/{added['id']}", json=change)).status_code == 400
    good = {**change, "payload": {"id": 1, "lines": [{"sku": "a"}], "unknown": 1}}
    assert (await http.patch(f"{API}/jobs/{added['id']}", json=good)).status_code == 200
    edit = f"/jobs/{added['id']}/edit"
    page = await http.post(edit, data={"payload": "[]", "revision": str(added["revision"] + 1)})
    assert page.status_code == 400
    assert "must be Order, not a list" in page.text
    saved = {"payload": "[]", "revision": str(added["revision"] + 1), "anyway": "yes"}
    assert (await http.post(edit, data=saved)).status_code == 303


async def test_a_schema_without_the_table_shows_nothing(http: httpx.AsyncClient, jobs: Jobs) -> None:
    job = await jobs.add("ship", {"id": "1"})
    await jobs.connection.execute(f"drop table {SCHEMA}._private_py_task_descriptions")
    assert (await http.get(f"/jobs/{job}")).status_code == 200
    assert (await http.post(f"{API}/jobs", json={"task": "ship"})).status_code == 201


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        ('{"id": 1, "lines": []}', None),
        ('{"id": 1.0, "lines": [{"sku": "a", "count": 2}], "note": null, "extra": {"a": 1}}', None),
        ('{"id": true, "lines": []}', "id must be a whole number, not true."),
        ('{"id": 1, "lines": [{}]}', "lines[0].sku is missing."),
        ('{"id": 1, "lines": [{"sku": 7}]}', "lines[0].sku must be a text, not a number."),
        ('{"id": 1, "lines": {}}', "lines must be a list of Line, not an object."),
        ('{"id": 1, "lines": [], "channel": "fax"}', 'channel must be "shop" or "web".'),
        ('{"id": 1, "lines": [], "note": 3}', "note must be a text or null, not a number."),
        ('{"id": 1, "lines": [], "extra": {"a": "b"}}', "extra.a must be a number, not a text."),
        ("3", "The payload must be Order, not a number."),
    ],
)
def test_the_check(payload: str, problem: str | None) -> None:
    found = problems_of(notes_of(description_of(ship), Redactor()), payload)
    assert found == ([] if problem is None else [problem])


def test_the_check_is_lenient_where_the_worker_is() -> None:
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Model", n=(int, ...), inner=(list[int], []))

    async def take(payload: Any) -> None: ...

    take.__annotations__["payload"] = model
    notes = notes_of(description_of(task("take")(take)), Redactor())
    assert problems_of(notes, '{"n": "7"}') == []
    assert problems_of(notes, '{"N": 7}') == []
    assert problems_of(notes, "{}") == ["n is missing."]
    assert problems_of(notes, '{"n": []}') == ["n must be a whole number, not a list."]


def test_a_job_without_a_payload_fits_an_optional_one() -> None:
    async def take(payload: Order | None) -> None: ...

    notes = notes_of(description_of(task("take")(take)), Redactor())
    assert notes is not None
    assert notes.payload_type == "Order | None"
    assert problems_of(notes, "{}") == []
    assert problems_of(notes, '{"id": 1}') == ["lines is missing."]


def test_schemas_are_bounded_and_hostile_ones_do_no_harm() -> None:
    async def take(payload: Literal["x"]) -> None: ...

    take.__annotations__["payload"] = Literal[tuple(f"value {n}" for n in range(MAX_SCHEMA_LENGTH // 8))]
    assert description_of(task("take")(take)).payload_schema is None
    for schema in (
        '{"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}',
        '{"$defs": {"a": {"items": {"$ref": "#/$defs/a"}, "type": "array"}}, "$ref": "#/$defs/a"}',
        '{"anyOf": [{"$ref": "#"}, 3], "properties": 3, "required": {"a": 1}, "enum": 3}',
        '{"type": {"a": 1}, "properties": {"a": 4}}',
        "[]",
        "nonsense",
    ):
        notes = notes_of(TaskDescription(payload_type="x", payload_schema=schema), Redactor())
        for payload in ("{}", "[" * 200 + "]" * 200, '{"a": [1]}', "1e999"):
            problems_of(notes, payload)
    bad = notes_of(TaskDescription(runbook="javascript:alert(1)", owner="x"), Redactor())
    assert bad is not None
    assert bad.runbook is None


@pytest.mark.parametrize(
    "options",
    [{"runbook": "javascript:alert(1)"}, {"runbook": 3}, {"owner": ""}, {"owner": "x" * 201}],
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(TaskLoadError, match=next(iter(options))):
        task("bad", **options)(plain.function)
