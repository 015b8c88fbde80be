"""Every option of a job on every face: each cell of the table in docs/adding-jobs.md is a test."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import asyncpg
import httpx
import pytest

from admin.conftest import client_of
from graphile_worker import CronItem, JobSpec, Unique, parse_cron_items, parse_crontab, task
from graphile_worker.admin import admin_app, everyone_may
from graphile_worker.cli.support.bulk_input import NAMES, read_specs
from graphile_worker.cron.item import CronItemKeywords, ParsedCronItem
from graphile_worker.cron.item_jobs import job_options, schedule_definitions
from graphile_worker.database.statements.schedules import STORED_OPTIONS
from graphile_worker.errors import CrontabError
from graphile_worker.options import CronItemOptions
from graphile_worker.tasks.task import TaskOptions
from graphile_worker.values.job_options import (
    BY_NAME,
    JOB_OPTIONS,
    JobOption,
    from_json,
    from_text,
    options_on,
)
from graphile_worker.values.spec import JobOptions
from support.command_line import Call, in_this_process

PAYLOAD = {"user": 1, "n": 2}


class Example(NamedTuple):
    """One value of an option, as each kind of face takes it."""

    python: Any
    flags: tuple[str, ...]
    json: Any
    text: str


EXAMPLES = {
    "queue_name": Example("mails", ("--queue", "mails"), "mails", "mails"),
    "run_at": Example(
        datetime(2040, 1, 1, tzinfo=UTC),
        ("--run-at", "2040-01-01T00:00:00Z"),
        "2040-01-01T00:00:00Z",
        "2040-01-01T00:00",
    ),
    "priority": Example(-3, ("--priority", "-3"), -3, "-3"),
    "max_attempts": Example(4, ("--max-attempts", "4"), 4, "4"),
    "job_key": Example("k", ("--key", "k"), "k", "k"),
    "job_key_mode": Example(
        "preserve_run_at", ("--key-mode", "preserve_run_at"), "preserve_run_at", "preserve_run_at"
    ),
    "unique": Example(Unique(fields=("user",)), ("--unique-by", "user"), ["user"], "user"),
    "tags": Example(["gold", "eu"], ("--tag", "gold", "--tag", "eu"), ["gold", "eu"], "gold,eu"),
    "flags": Example(["slow", "big"], ("--flag", "slow", "--flag", "big"), ["slow", "big"], "slow,big"),
    "timeout": Example(timedelta(minutes=5), ("--timeout", "5m"), "5m", "5m"),
    "expires": Example(timedelta(hours=2), ("--expires", "2h"), "2h", "2h"),
    "keep": Example(timedelta(days=30), ("--keep-for", "30d"), "30d", "30d"),
    "keep_payload": Example(True, ("--keep-payload",), True, "yes"),
}
TOGETHER: Mapping[str, tuple[str, ...]] = {"job_key_mode": ("job_key",), "keep_payload": ("keep",)}
"""Options that mean something only with others."""


def cells(face: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("option", options_on(face), ids=lambda option: option.name)


def given(option: JobOption) -> list[JobOption]:
    """The option, and those that it needs."""
    return [BY_NAME[name] for name in (*TOGETHER.get(option.name, ()), option.name)]


def spec_of(option: JobOption) -> JobSpec:
    """What Python's face makes of it."""
    return JobSpec("t", PAYLOAD, **{each.name: EXAMPLES[each.name].python for each in given(option)})


def stored(spec: JobSpec) -> dict[str, Any]:
    """What reaches the database."""
    values = {name: getattr(spec, name) for name in ("run_at", *STORED_OPTIONS)}
    return values | {"flags": sorted(spec.flags or ())}


def test_every_option_has_an_example_and_is_declared_everywhere() -> None:
    names = {option.name for option in JOB_OPTIONS}
    assert set(EXAMPLES) == names
    assert names == set(JobOptions.__annotations__)
    assert names == set(JobSpec.__struct_fields__) - {"task_identifier", "payload"}
    of_task = {option.name for option in options_on("task")}
    assert of_task <= set(TaskOptions.__annotations__)
    assert names - of_task == {"run_at"}
    recurring = {option.name for option in options_on("cron")}
    assert {field.name for field in fields(CronItemOptions)} == recurring | {"backfill_period", "tz"}
    assert CronItemKeywords.__optional_keys__ == {
        *recurring, "payload", "identifier", "backfill_period", "tz",
    }  # fmt: skip
    assert set(NAMES.values()) == names | {"task_identifier", "payload"}
    assert all(face and reason for option in JOB_OPTIONS for face, reason in option.absent.items())


@cells("add_job")
def test_in_python(option: JobOption) -> None:
    assert stored(spec_of(option)) != stored(JobSpec("t", PAYLOAD))


@cells("task")
def test_on_a_task(option: JobOption) -> None:
    chosen = {each.name: EXAMPLES[each.name].python for each in given(option)}

    @task("t", **chosen)
    async def declared(payload: dict[str, int]) -> None: ...

    @task("t")
    async def plain(payload: dict[str, int]) -> None: ...

    if option.name in declared.spec_defaults:
        assert stored(declared.spec(PAYLOAD)) == stored(spec_of(option))
    else:
        assert declared.rules != plain.rules


@cells("lines")
def test_in_json_lines(option: JobOption) -> None:
    for names in ([each.short for each in given(option)], [each.name for each in given(option)]):
        values = [EXAMPLES[each.name].json for each in given(option)]
        line = json.dumps({"task": "t", "payload": PAYLOAD} | dict(zip(names, values, strict=True)))
        (spec,) = read_specs(io.StringIO(line), "jobs.jsonl")
        assert stored(spec) == stored(spec_of(option))


def recurring_job(item: ParsedCronItem) -> JobSpec:
    return JobSpec("t", PAYLOAD, **job_options(item.options, {}))


def expected_of_recurring(option: JobOption) -> dict[str, Any]:
    mode = {"job_key_mode": "replace"} if option.name == "job_key" else {}
    return stored(spec_of(option)) | mode


@cells("cron")
def test_on_a_cron_item(option: JobOption) -> None:
    chosen = {each.name: EXAMPLES[each.name].python for each in given(option)}
    (item,) = parse_cron_items([CronItem("t", "0 4 * * *", chosen, payload=PAYLOAD)])
    assert stored(recurring_job(item)) == expected_of_recurring(option)
    (same,) = parse_cron_items([CronItem.daily_at("t", 4, payload=PAYLOAD, **chosen)])
    assert same.options == item.options
    (registered,) = schedule_definitions([item], {})
    for name, value in stored(recurring_job(item)).items():
        if value and option.name != "unique":
            assert registered.options[name] == value


@cells("crontab")
def test_in_a_crontab(option: JobOption) -> None:
    text = "&".join(f"{each.crontab}={EXAMPLES[each.name].text}" for each in given(option))
    (item,) = parse_crontab(f"0 4 * * * t ?{text} {json.dumps(PAYLOAD)}")
    assert stored(recurring_job(item)) == expected_of_recurring(option)


async def row_of(database_url: str) -> dict[str, Any]:
    connection = await asyncpg.connect(database_url)
    try:
        row = await connection.fetchrow(
            "select queue_name, run_at, priority, max_attempts, key, flags::text "
            "from graphile_worker._private_jobs as job "
            "left join graphile_worker._private_job_queues as queue on queue.id = job.job_queue_id"
        )
    finally:
        await connection.close()
    assert row is not None
    return dict(row)


def check_row(row: Mapping[str, Any], option: JobOption) -> None:
    expected = stored(spec_of(option))
    assert sorted(json.loads(row["flags"] or "{}")) == expected["flags"]
    assert row["key"] == expected["job_key"]
    assert row["queue_name"] == expected["queue_name"]
    assert row["priority"] == (expected["priority"] or 0)
    assert row["max_attempts"] == (expected["max_attempts"] or 25)
    if expected["run_at"] is not None:
        assert row["run_at"] == expected["run_at"]


@cells("add")
def test_on_the_command_line(
    option: JobOption,
    database_url: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call: Call = in_this_process(capsys, monkeypatch)
    flags = [flag for each in given(option) for flag in EXAMPLES[each.name].flags]
    call("-c", database_url, "add", "t", json.dumps(PAYLOAD), *flags).check()
    check_row(asyncio.run(row_of(database_url)), option)


@cells("dashboard")
@pytest.mark.parametrize("how", ["form", "API"])
async def test_in_the_dashboard(option: JobOption, how: str, database_url: str) -> None:
    app = admin_app(connection_string=database_url, authorize=everyone_may)
    try:
        async with client_of(app) as http:
            answer = await _add(http, how, option)
    finally:
        await app.aclose()
    assert answer.status_code in (201, 303), answer.text
    check_row(await row_of(database_url), option)


async def _add(http: httpx.AsyncClient, how: str, option: JobOption) -> httpx.Response:
    if how == "API":
        values = {each.short: EXAMPLES[each.name].json for each in given(option)}
        return await http.post("/api/v1/jobs", json={"task": "t", "payload": PAYLOAD, **values})
    page = (await http.get("/jobs/new")).text
    assert all(f'name="{each.short}"' in page for each in options_on("dashboard"))
    texts = {each.short: EXAMPLES[each.name].text for each in given(option)}
    return await http.post("/jobs/new", data={"task": "t", "payload": json.dumps(PAYLOAD), **texts})


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("keep", "yes", True),
        ("keep", "no", False),
        ("unique", "*", Unique()),
        ("unique", "a b", Unique(fields=("a", "b"))),
        ("timeout", "90", timedelta(seconds=90)),
        ("tags", " a,, b ", ("a", "b")),
    ],
)
def test_what_texts_mean(name: str, text: str, value: object) -> None:
    assert from_text(BY_NAME[name], text) == value


@pytest.mark.parametrize(
    ("name", "value", "meaning"),
    [
        ("keep", 60, timedelta(minutes=1)),
        ("keep", False, False),
        ("unique", True, Unique()),
        ("unique", False, None),
        ("unique", {"fields": ["a"], "while": "waiting"}, Unique(fields=["a"], while_="waiting")),
        ("timeout", 1.5, 1.5),
    ],
)
def test_what_json_values_mean(name: str, value: object, meaning: object) -> None:
    assert from_json(BY_NAME[name], value) == meaning


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("priority", "high", "'high' is not a whole number"),
        ("keep", "long", "'long' is not a period"),
        ("keep_payload", "maybe", "'maybe' is neither yes nor no"),
        ("expires", "soon", "'soon' is neither a time"),
    ],
)
def test_a_wrong_text_is_refused(name: str, text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        from_text(BY_NAME[name], text)


@pytest.mark.parametrize("value", [[1], {}, 1e300])
def test_a_wrong_json_value_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="is not a number of seconds"):
        from_json(BY_NAME["keep"], value)


@cells("crontab")
def test_the_check_of_a_crontab_shows_it(
    option: JobOption, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    call: Call = in_this_process(capsys, monkeypatch)
    text = "&".join(f"{each.crontab}={EXAMPLES[each.name].text}" for each in given(option))
    line = f"0 4 * * * t ?{text} {json.dumps(PAYLOAD)}\n"
    shown = call("crontab", "check", "-", input=line)
    assert f"{option.name} " in shown.out
    (found,) = call("crontab", "check", "-", "--json", input=line).json["jobs"]
    assert option.name in found["options"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("unique=*&jobKey=k", "the option 'unique': cannot be combined with a job key"),
        ("expires=2030-01-01T00:00:00Z", "the option 'expires': expected a period such as 2h, got the time"),
        ("unique=", "expected names of members, or \\* for the whole payload"),
    ],
)
def test_options_of_a_crontab_that_are_refused(text: str, said: str) -> None:
    with pytest.raises(CrontabError, match=said):
        parse_crontab(f"0 4 * * * t ?{text}")
