"""Redaction of hostile texts: nothing slips through, and nothing takes long."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from admin.conftest import client_of
from graphile_worker.admin import Identity, admin_app
from graphile_worker.admin.jobs.filters import Filter
from graphile_worker.admin.operations.runner import _why_stopped
from graphile_worker.admin.security.identity import ROLES
from graphile_worker.admin.security.redact import Redactor
from support.working import Jobs

WITHIN = 10.0  # seconds of the processor; each takes milliseconds, and minutes if work grows with the square
SECRET = "hunter2"


@pytest.mark.parametrize(
    "text",
    [
        "password=hunter2",
        "password: 'hunter2 and more of hunter2'",
        'password="hunter2 is not closed, hunter2',
        'password="an \\" and hunter2"',
        "{'db_password': 'hunter2'}",
        '{"a": "{\\"password\\": \\"hunter2 hunter2\\"}"}',
        '"{\\\\\\"api_key\\\\\\":\\\\\\"hunter2\\\\\\"}"',
        "InvalidTokenError: password=hunter2",
        "TokenExpired: Authorization: Bearer hunter2",
        "Cookie: hunter2",
        "os.environ['SECRET_KEY'] = hunter2",
        "private-key = hunter2",
        "amqp://user:hunter2@host/path",
        "https://x:" + "a" * 500 + "hunter2@host",
        "could not reach postgres://user:hunter2",
        "://a:1 ://b:hunter2@c",
        "x" * 70 + "_password_" + "y" * 70 + "=hunter2",
        "Authorization: Token hunter2",
        'Authorization: Digest username="ada", response="hunter2"',
        "Cookie: theme=dark; sid=hunter2; other=hunter2",
        "cookies={'a': 'hunter2', 'b': 'hunter2'}",
        "password => 'hunter2'",
        "password := 'hunter2'",
        "password != b'hunter2 hunter2'",
        "https://hunter2@example.com/repo.git",
        "redis://" + "a" * 500 + "hunter2@example.com",
        "postgres://u:p@hunter2@h/db",
        "postgres://u:p@ss@hunter2@h/db",
        "pg_dump --password hunter2 --host db",
        "run --db-api-token 'hunter2 hunter2'",
        "Command '['pg_dump', '--password', 'hunter2']' returned 1",
        "pwd=hunter2",
        "PWD: hunter2",
        "jwt=hunter2",
        "AWS_ACCESS_KEY_ID=hunter2",
        "access-key: hunter2",
        '[["Authorization","Bearer hunter2"]]',
        "[('X-Api-Key', 'hunter2')]",
        "token=['hunter2', 'hunter2']",
    ],
)
def test_secrets_in_texts_are_hidden(text: str) -> None:
    assert SECRET not in Redactor().text(text)


@pytest.mark.parametrize(
    "text",
    [
        "TokenError: unexpected end of file",
        "http://localhost:8080/path",
        "see http://localhost:5432",
        "SessionExpired: at 12:00",
        "a token of thanks",
        "ratio 3:4 @ 5",
        "the fields 'password', 'email' are missing",
        "https://example.com/users/@ada",
        "mail to ada@example.com, see https://example.com/a?b=c",
        "pg_dump --host db --port 5432",
    ],
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert Redactor().text(text) == text


def test_payloads_are_redacted_at_any_depth() -> None:
    redactor = Redactor(["card.number", "*.pin"])
    payload = {
        "a": [{"token": SECRET}, {"b": {"password": [SECRET, {"c": SECRET}], "kept": 1}}],
        "card": {"number": SECRET, "name": "ada"},
        "1": {"session": {"2": SECRET}},
        "list": [{"pin": SECRET}],
        "number": 5,
        "last": [],
    }
    found = redactor.json(json.dumps(payload))
    assert SECRET not in found
    shown = json.loads(found)
    assert shown["a"][1]["b"]["kept"] == 1
    assert shown["card"]["name"] == "ada"
    assert (shown["number"], shown["last"]) == (5, [])


@pytest.mark.parametrize(
    "payload",
    [
        {"headers": [["Authorization", f"Bearer {SECRET}"], ["Accept", "shown"]]},
        {"command": ["pg_dump", "--password", SECRET, "shown"]},
        {"note": f"log in with password={SECRET}", "other": "shown"},
        {"url": f"https://{SECRET}@example.com/shown"},
        {"pwd": SECRET, "jwt": {"a": SECRET}, "access_key": SECRET, "b": "shown"},
        {"cookies": [["a", SECRET]], "b": ["shown"]},
    ],
)
def test_secrets_are_hidden_beside_their_names_and_in_texts(payload: object) -> None:
    found = Redactor().json(json.dumps(payload))
    assert SECRET not in found
    assert "shown" in found
    json.loads(found)


@pytest.mark.parametrize(
    "payload",
    [
        '{"a":' * 5000 + '"token"' + "}" * 5000,
        "[" * 5000 + '{"a":1,"token":2}' + "]" * 5000,
        json.dumps({"token": '\\"' * 200_000}),
        json.dumps({"token": 1, **dict.fromkeys(map(str, range(10_000)), "://a:")}),
        json.dumps(["token"] * 50_000),
        json.dumps([["--token"] * 2] * 20_000),
    ],
)
def test_hostile_payloads_take_no_time(payload: str) -> None:
    begin = time.process_time()
    Redactor(["a.b", "*.c"]).json(payload)
    # timing: only a measure shows the order of growth; other processes do not count.
    assert time.process_time() - begin < WITHIN


@pytest.mark.parametrize(
    "part",
    [
        "://a:", "://", 'token="', "token='a\\", "token", "session-", 'token:\\"', 'token=\\\\"',
        "--token ", "-a", "'--token',", "--a 'b", "[('token',", '["', "://a@", "@://a:b@", "://a:b@@",
        "cookie:", "password => ", "token=[", "token=b'", 'password"]', "password  ",
        "token=bearer  ", "https://x:y", "secret=(", "\\",
    ],
)  # fmt: skip
def test_hostile_texts_take_no_time(part: str) -> None:
    begin = time.process_time()
    Redactor().text(part * (200_000 // len(part)))
    # timing: only a measure shows the order of growth; other processes do not count.
    assert time.process_time() - begin < WITHIN


def test_why_an_operation_stopped_is_told_without_secrets() -> None:
    row: Any = {"stage": "watching"}
    failed: Any = [{"id": 1, "last_error": f"ValueError: password={SECRET}\nand more"}]
    assert _why_stopped(row, failed) == "The first job, 1, failed again: ValueError: password=[redacted]"


async def test_a_viewer_cannot_guess_a_hidden_member_by_searching(database_url: str, jobs: Jobs) -> None:
    payload = {"card": {"number": SECRET}, "headers": [["Authorization", SECRET]], "note": "[urgent] a"}
    await jobs.add("a", payload)

    def operator(request: object) -> Identity:
        return Identity(name="eve", permissions=ROLES["operator"], how="test")

    app = admin_app(connection_string=database_url, authorize=operator, redact=["card.number"])
    async with client_of(app) as http:
        for name, value in (
            ("card", '{"number":"hunter2"}'),
            ("card", '{"number": "hunter2"}'),
            ("headers", '[["Authorization","hunter2"]]'),
            ("headers.0", '["Authorization","hunter2"]'),
            ("headers.0.1", SECRET),
        ):
            answer = await http.get("/api/v1/jobs", params={f"payload.{name}": value})
            assert answer.status_code == 403, (name, value)
            filter = Filter(((f"payload.{name}", value),)).text
            body = {"action": "retry", "filter": filter, "dry_run": True}
            answer = await http.post("/api/v1/operations", json=body)
            assert answer.status_code == 403, (name, value)
        found = await http.get("/api/v1/jobs", params={"payload.note": "[urgent] a"})
        assert len(found.json()["items"]) == 1
    await app.aclose()


async def test_a_search_finds_no_more_than_a_viewer_sees(database_url: str, jobs: Jobs) -> None:
    """The statement hides what the page hides, so a search that finds nothing tells nothing."""
    errors = [
        'password="an \\" and hunter2"',
        'password="not closed, and hunter2',
        '{"a": "{\\"password\\": \\"and hunter2\\"}"}',
        "https://x:" + "a" * 500 + "hunter2@host",
        "secret" + "_" * 70 + "=hunter2",
        "Authorization: Token hunter2",
        "Cookie: a=b; c=hunter2",
        "password => 'hunter2'",
        "https://hunter2@host",
        "postgres://u:p@hunter2@h/db",
        "postgres://u:hunter2",
        "pg_dump --db-password hunter2",
        "['--password', 'hunter2']",
        '[["Authorization","Bearer hunter2"]]',
        "jwt=hunter2",
        "token=['a', 'hunter2']",
        "shown: hunter2",
    ]
    for error in errors:
        job = await jobs.add("a")
        await jobs.connection.execute(
            "update graphile_worker._private_jobs set last_error = $2, attempts = max_attempts where id = $1",
            job,
            error,
        )

    def viewer(request: object) -> Identity:
        return Identity(name="eve", permissions=ROLES["viewer"], how="test")

    app = admin_app(connection_string=database_url, authorize=viewer)
    async with client_of(app) as http:
        for name in ("error", "text"):
            found = (await http.get("/api/v1/jobs", params={name: SECRET})).json()["items"]
            assert [each["last_error"] for each in found] == ["shown: hunter2"]
    await app.aclose()
