"""What add_job and add_jobs refuse, with the codes that the reference lists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import asyncpg
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "sql.md"
ADD = "select graphile_worker.add_job"
MANY = "select graphile_worker.add_jobs(array[{}]::graphile_worker.job_spec[])"
TWICE = ", ".join(["row('a', null, null, null, null, 'k', null, null)"] * 2)

REFUSED = [
    (f"{ADD}(repeat('a', 129))", "23514", "tasks_identifier_check"),
    (f"{ADD}('a', queue_name => repeat('q', 129))", "23514", "job_queues_queue_name_check"),
    (f"{ADD}('a', job_key => '')", "23514", "jobs_key_check"),
    (f"{ADD}('a', job_key => repeat('k', 513))", "23514", "jobs_key_check"),
    (f"{ADD}('a', max_attempts => 0)", "23514", "jobs_max_attempts_check"),
    (f"{ADD}(null)", "23502", None),
    (f"{ADD}('a', priority => 40000)", "22003", None),
    (f"{ADD}('a', max_attempts => 40000)", "22003", None),
    (f"{ADD}('a', flags => array[null]::text[])", "22023", None),
    (f"{ADD}('a', job_key => 'k', job_key_mode => 'other')", "GWBKM", None),
    (MANY.format(TWICE), "21000", None),
    (MANY.format("row('a', null, null, null, 0, null, null, null)"), "23514", "jobs_max_attempts_check"),
]


@pytest.mark.parametrize(("statement", "sqlstate", "constraint"), REFUSED)
async def test_what_is_refused_has_its_code_and_the_name_of_the_constraint(
    connection: Any, statement: str, sqlstate: str, constraint: str | None
) -> None:
    with pytest.raises(asyncpg.PostgresError) as caught:
        await connection.fetch(statement)
    assert caught.value.sqlstate == sqlstate
    assert getattr(caught.value, "constraint_name", None) == constraint


def test_the_reference_lists_these_codes_and_no_others() -> None:
    rows = re.findall(r"^\| ([0-9A-Z]{5}) \| (?:`(\w+)`)? ?\|", PAGE.read_text(), re.MULTILINE)
    assert set(rows) == {(sqlstate, constraint or "") for _, sqlstate, constraint in REFUSED}
