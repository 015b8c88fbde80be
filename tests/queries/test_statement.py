"""Statements as values: the rules that adapters for other drivers rely on. No server."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from graphile_worker.database.connections.encoding import without_comments
from graphile_worker.database.connections.statement import Statement
from graphile_worker.database.sql import FOLDER, load, names
from graphile_worker.database.statements.add import add_statement, job_from_row
from graphile_worker.database.statements.add_many import add_many_steps
from graphile_worker.database.statements.schedules import CronMinute, cron_statement
from graphile_worker.values.schema_name import SchemaName
from graphile_worker.values.spec import CronJob, JobSpec

NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
PLAIN = (type(None), bool, int, float, str, datetime, list)
SCHEMAS = [SchemaName(), SchemaName("odd -- $1 'n' %s\nname")]


def statements(schema: SchemaName) -> list[Statement]:
    full = JobSpec(
        "task", {"a": 1}, queue_name="q", run_at=NOW, max_attempts=2, job_key="k", priority=1, flags={"f"}
    )
    cron = CronJob("task", {}, identifier="item", run_at=NOW)
    return [
        add_statement(schema, full),
        add_statement(schema, JobSpec("task", run_at=timedelta(hours=1))),
        next(add_many_steps(schema, [full])),
        next(add_many_steps(schema, [JobSpec("task"), JobSpec("other", priority=1)])),
        next(add_many_steps(schema, [JobSpec("task"), JobSpec("task")])),
        cron_statement(schema, CronMinute(NOW, [cron], ["refused"])),
    ]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_statements_have_plain_arguments_and_no_comments(schema: SchemaName) -> None:
    for sql, arguments in statements(schema):
        text = sql.replace(schema.quoted, "schema")
        assert "--" not in text
        assert schema.quoted in sql
        assert {int(number) for number in re.findall(r"\$([0-9]+)", text)} == set(
            range(1, len(arguments) + 1)
        )
        assert all(isinstance(value, PLAIN) for value in arguments)
        items = [item for value in arguments if isinstance(value, list) for item in value]
        assert all(item is None or isinstance(item, str) for item in items)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_parameter_has_a_cast(schema: SchemaName) -> None:
    for sql, _ in statements(schema):
        text = sql.replace(schema.quoted, "schema")
        assert not re.search(r"\$[0-9]+(?![0-9]|::)", text)


REACHED_BY_CLIENTS = [
    *(f"{subject}/" for subject in ("add", "inspect", "maintain", "manage", "migrate")),
    *(
        f"recovery/{name}"
        for name in (
            "delete_dead_workers", "delete_old_rust_workers", "deregister_rust_workers", "has_rust_rows",
            "list_workers",
            "mark_unreachable_workers", "orphaned_jobs", "purge_recoveries", "recover_jobs", "sweep_lock",
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize("prefix", REACHED_BY_CLIENTS)
def test_every_parameter_has_a_cast_in_the_statements_that_a_client_uses(prefix: str) -> None:
    """Some libraries send values without a type, and the server must not have to guess."""
    found = [name for name in names() if name.startswith(prefix)]
    assert found
    for name in found:
        text = without_comments(load(name, SchemaName()))
        assert not re.search(r"\$[0-9]+(?![0-9]|::)", text), name


def test_pyformat_leaves_quoted_text_alone() -> None:
    statement = Statement("""select '$1 100%', "a$1", $1::text, $2::text, $1::text""", ("x", None))
    text = """select '$1 100%%', "a$1", (%(p1)s)::text, (%(p2)s)::text, (%(p1)s)::text"""
    assert statement.pyformat() == (text, {"p1": "x", "p2": None})


def test_pyformat_removes_comments() -> None:
    """A driver would write the value into the comment, and its second line would run."""
    statement = Statement("-- $1 the name, don't\nselect $1::text -- 100 %\n", ("x\n; drop",))
    assert statement.pyformat()[0] == "select (%(p1)s)::text"


def test_the_clock_of_the_caller_replaces_the_servers() -> None:
    schema = SchemaName()
    assert add_statement(schema, JobSpec("a"), now=NOW).arguments[3:5] == (NOW, None)
    later = JobSpec("a", run_at=timedelta(hours=1))
    assert add_statement(schema, later, now=NOW).arguments[3:5] == (NOW + timedelta(hours=1), None)
    assert add_statement(schema, later).arguments[3:5] == (None, 3600.0)


def test_a_row_becomes_a_job() -> None:
    statement = add_statement(SchemaName(), JobSpec("a", {"b": 1}, priority=-3, queue_name="q"))
    job = job_from_row((7, 10.0, 9.0, None, 3, 4), statement)
    assert job is not None
    assert (job.id, job.payload, job.task_identifier) == (7, {"b": 1}, "a")
    assert (job.priority, job.max_attempts, job.task_id, job.job_queue_id) == (-3, 25, 3, 4)
    assert job.run_at == datetime(1970, 1, 1, 0, 0, 10, tzinfo=UTC)
    keyed = add_statement(SchemaName(), JobSpec("a", [1], job_key="k"))
    merged = job_from_row(
        (7, "[2,1]", 0, 10.0, 0, 25, None, 9.0, 9.0, "k", None, 0, None, 3, None, None), keyed
    )
    assert merged is not None
    assert (merged.payload, merged.key) == ([2, 1], "k")


def test_an_add_that_got_lost_has_no_job() -> None:
    statement = add_statement(SchemaName(), JobSpec("a", job_key="k"))
    assert job_from_row((None,) * 16, statement) is None
    assert job_from_row(None, statement) is None


def test_sql_is_ascii() -> None:
    """A database in LATIN1 refuses a statement for one character that it does not have, even in a comment."""
    assert [path.name for path in FOLDER.rglob("*.sql") if not path.read_text().isascii()] == []
