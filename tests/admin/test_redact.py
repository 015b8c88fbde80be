"""Redaction of hostile texts: nothing slips through, and nothing takes long."""

from __future__ import annotations

import json
import time

import pytest

from admin.conftest import client_of
from graphile_worker.admin import Identity, admin_app
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
        '{"a":' * 5000 + '"token"' + "}" * 5000,
        "[" * 5000 + '{"a":1,"token":2}' + "]" * 5000,
        json.dumps({"token": '\\"' * 200_000}),
        json.dumps({"token": 1, **dict.fromkeys(map(str, range(10_000)), "://a:")}),
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
        'password"]', "password  ", "token=bearer  ", "https://x:y", "secret=(", "\\",
    ],
)  # fmt: skip
def test_hostile_texts_take_no_time(part: str) -> None:
    begin = time.process_time()
    Redactor().text(part * (200_000 // len(part)))
    # timing: only a measure shows the order of growth; other processes do not count.
    assert time.process_time() - begin < WITHIN


async def test_a_search_finds_no_more_than_a_viewer_sees(database_url: str, jobs: Jobs) -> None:
    """The statement hides what the page hides, so a search that finds nothing tells nothing."""
    errors = [
        'password="an \\" and hunter2"',
        'password="not closed, and hunter2',
        '{"a": "{\\"password\\": \\"and hunter2\\"}"}',
        "https://x:" + "a" * 500 + "hunter2@host",
        "secret" + "_" * 70 + "=hunter2",
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
