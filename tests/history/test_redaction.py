"""Redactors decide what of payloads, results and errors is kept."""

from __future__ import annotations

import json
from typing import Any

import pytest

from graphile_worker import App, task
from graphile_worker.errors import ConfigError
from graphile_worker.hooks import Hooks
from graphile_worker.hooks.interceptors import REDACTION_FAILED
from support.working import SCHEMA, Jobs, Workers

HISTORY, ERRORS = f"{SCHEMA}._private_py_history", f"{SCHEMA}._private_py_errors"
GROUPS = f"{SCHEMA}._private_py_error_groups"
SECRET = "hunter2"


@task(keep=True, keep_payload=True)
async def sign_in(payload: dict[str, Any]) -> dict[str, Any]:
    if payload.get("fails"):
        raise ValueError(f"wrong password {payload['password']}")
    return {"token": payload["password"], "n": payload.get("n")}


def hide(part: str, task_identifier: str, value: Any) -> Any:
    assert task_identifier == "sign_in"
    if part == "error":
        return value.replace(SECRET, "***")
    return {key: "***" if inner == SECRET else inner for key, inner in value.items()}


def hooks_with(*redactors: Any) -> Hooks:
    hooks = Hooks()
    for redactor in redactors:
        hooks.redact(redactor)
    return hooks


async def stored(jobs: Jobs) -> str:
    """Everything in the tables of the history, and the last errors of jobs, as text."""
    texts = [
        await jobs.connection.fetchval(f"select string_agg(stored::text, ' ') from {table} stored")
        for table in (HISTORY, ERRORS, GROUPS)
    ]
    errors = await jobs.connection.fetchval(
        f"select string_agg(last_error, ' ') from {SCHEMA}._private_jobs where last_error is not null"
    )
    return " ".join(text for text in (*texts, errors) if text)


async def test_nothing_secret_is_stored(jobs: Jobs, workers: Workers) -> None:
    for n in range(3):
        await jobs.add("sign_in", {"password": SECRET, "n": n})
    await jobs.add("sign_in", {"password": SECRET, "fails": True}, max_attempts=1)
    await workers.once([sign_in], hooks=hooks_with(hide))
    rows = await jobs.connection.fetch(f"select state, payload, result, error from {HISTORY} order by job_id")
    assert [row["state"] for row in rows] == ["completed"] * 3 + ["failed"]
    for n, row in enumerate(rows[:3]):
        assert json.loads(row["payload"]) == {"password": "***", "n": n}
        assert json.loads(row["result"]) == {"token": "***", "n": n}
    assert json.loads(rows[3]["payload"]) == {"password": "***", "fails": True}
    assert rows[3]["error"].startswith("ValueError: wrong password ***")
    text = await stored(jobs)
    assert "wrong password ***" in text
    assert "sign_in" in text  # the traceback
    assert SECRET not in text
    assert SECRET in (await jobs.one())["payload"]  # the job itself could not run again without it


async def test_without_a_redactor_all_is_stored(jobs: Jobs, workers: Workers) -> None:
    await jobs.add("sign_in", {"password": SECRET})
    await workers.once([sign_in])
    assert SECRET in await stored(jobs)


async def test_redactors_are_called_in_turn_and_belong_to_an_app_too(jobs: Jobs, workers: Workers) -> None:
    app = App(tasks=[sign_in])

    @app.hooks.redact
    def first(part: str, task_identifier: str, value: Any) -> Any:
        return [part, value] if part == "payload" else None

    @app.hooks.redact
    def second(part: str, task_identifier: str, value: Any) -> Any:
        return {"was": value}

    await jobs.add("sign_in", {"password": SECRET})
    await workers.once(None, app=app)
    row = await jobs.connection.fetchrow(f"select payload, result from {HISTORY}")
    assert json.loads(row["payload"]) == {"was": ["payload", {"password": SECRET}]}
    assert json.loads(row["result"]) == {"was": None}


@pytest.mark.parametrize("answer", ["raises", "no JSON"])
async def test_a_redactor_that_fails_lets_nothing_pass(
    jobs: Jobs, workers: Workers, caplog: pytest.LogCaptureFixture, answer: str
) -> None:
    def broken(part: str, task_identifier: str, value: Any) -> Any:
        if answer == "raises":
            raise KeyError("card")
        return object()

    await jobs.add("sign_in", {"password": SECRET})
    await jobs.add("sign_in", {"password": SECRET, "fails": True}, max_attempts=1)
    await workers.once([sign_in], hooks=hooks_with(broken))
    rows = await jobs.connection.fetch(f"select state, payload, result, error from {HISTORY} order by job_id")
    assert [row["state"] for row in rows] == ["completed", "failed"]
    assert [json.loads(rows[0]["payload"]), json.loads(rows[0]["result"])] == [REDACTION_FAILED] * 2
    assert rows[1]["error"] == REDACTION_FAILED
    assert SECRET not in await stored(jobs)
    said = [record.getMessage() for record in caplog.records if record.name == "graphile_worker.hooks"]
    assert any("payload of a job of sign_in" in line for line in said)
    assert not any(SECRET in line for line in said)


def test_a_redactor_is_a_plain_function() -> None:
    async def hide_later(part: str, task_identifier: str, value: Any) -> Any:
        return value

    wrong: Any = "hide"
    for redactor in (hide_later, wrong):
        with pytest.raises(ConfigError, match="redact: expected a plain function"):
            Hooks().redact(redactor)


def test_others_can_ask_what_may_be_shown() -> None:
    assert hooks_with(hide).redacted("payload", "sign_in", {"password": SECRET}) == {"password": "***"}
    assert Hooks().redacted("payload", "sign_in", {"password": SECRET}) == {"password": SECRET}
