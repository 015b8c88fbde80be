"""The dashboard's own sign-in: passwords, one-time link, tokens, sessions, limits."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime

import asyncpg
import httpx
import pytest

from graphile_worker.admin import AdminApp, SignIn
from graphile_worker.admin.database import Database
from graphile_worker.admin.security.passwords import (
    check_password_hash,
    hash_password,
    hash_token,
    matches,
    new_token,
)
from graphile_worker.admin.security.sessions import LASTS
from graphile_worker.admin.security.sign_in import (
    MAX_ENTRIES,
    SignInAttempts,
    address_key,
    safe_path,
)
from graphile_worker.admin.settings import AppSettings
from graphile_worker.errors import ConfigError
from graphile_worker.history.audit import Actor
from graphile_worker.testing.fake_clock import FakeClock
from support.working import PATIENCE, until

from .callers import NOWHERE, client, same_origin

SESSION = "/api/v1/session"
PASSWORD = "correct horse"
SECRET = "a secret that survives restarts"
START = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def hashed() -> str:
    return hash_password(PASSWORD)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
def sign_in(hashed: str, clock: FakeClock) -> SignIn:
    users = {"ada": f"operator:{hashed}", "eve": f"viewer:{hashed}"}
    return SignIn(users=users, secret=SECRET, clock=clock)


def app_with(sign_in: SignIn) -> AdminApp:
    database = Database(connection_string=NOWHERE)
    return AdminApp([database], authorize=sign_in, settings=AppSettings(secret=SECRET))


async def log_in(http: httpx.AsyncClient, **fields: str) -> httpx.Response:
    return await http.post("/login", data={"user": "ada", "password": PASSWORD} | fields)


# -- passwords ---------------------------------------------------------------------------------------------


async def test_a_password_begins_a_session(sign_in: SignIn) -> None:
    async with same_origin(app_with(sign_in)) as http:
        page = await http.get("/jobs?q=a%20b", headers={"Accept": "text/html"})
        assert (page.status_code, page.headers["Location"]) == (303, "/login?next=%2Fjobs%3Fq%3Da%2520b")
        form = await http.get(page.headers["Location"])
        assert 'name="password"' in form.text
        assert 'value="/jobs?q=a%20b"' in form.text
        answer = await log_in(http, next="/jobs?q=a%20b")
        assert (answer.status_code, answer.headers["Location"]) == (303, "/jobs?q=a%20b")
        found = (await http.get(SESSION)).json()
    assert found["user"] == "ada"
    assert "jobs.retry" in found["permissions"]
    assert "jobs.delete" not in found["permissions"]


async def test_a_wrong_user_and_a_wrong_password_get_the_same_answer(sign_in: SignIn) -> None:
    failures: list[Actor] = []
    app = app_with(sign_in)
    sign_in.on_failure = failures.append
    async with same_origin(app) as http:
        answers = [
            await log_in(http, password="wrong"),
            await log_in(http, user="nobody"),
            await log_in(http, user="ada", password=""),
        ]
    assert {answer.status_code for answer in answers} == {401}
    assert 'value="nobody"' in answers[1].text  # need not be typed again
    texts = [re.sub(r'nonce="[^"]*"| value="(?:ada|nobody)"', "", answer.text) for answer in answers]
    assert texts[0] == texts[1] == texts[2]
    assert "set-cookie" not in answers[0].headers
    assert [(each.name, each.how) for each in failures] == [
        ("ada", "password"), ("nobody", "password"), ("ada", "password")
    ]  # fmt: skip


async def test_cookies_are_out_of_reach_of_scripts_and_other_sites(sign_in: SignIn) -> None:
    app = app_with(sign_in)
    async with same_origin(app) as http:
        plain = (await log_in(http)).headers["Set-Cookie"]
    async with client(app, url="https://jobs.example:8443", Origin="https://jobs.example:8443") as http:
        secure = (await log_in(http)).headers["Set-Cookie"]
    for cookie in (plain, secure):
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert "Path=/;" in cookie
        assert "Domain" not in cookie
    assert plain.startswith("graphile_worker_session=")
    assert "Secure" not in plain
    assert secure.startswith("__Secure-graphile_worker_session_8443=")
    assert "; Secure" in secure


async def test_a_mounted_dashboard_keeps_its_cookie_to_itself(sign_in: SignIn) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    outer = Starlette(routes=[Mount("/a/b", app_with(sign_in))])
    async with same_origin(outer) as http:
        answer = await http.post("/a/b/login", data={"user": "ada", "password": PASSWORD})
        assert answer.headers["Location"] == "/a/b/"
        assert "Path=/a/b;" in answer.headers["Set-Cookie"]
        assert (await http.get(f"/a/b{SESSION}")).json()["user"] == "ada"


@pytest.mark.parametrize(
    "target",
    [
        "//evil.example", "https://evil.example", "/\\evil.example", "\\\\evil.example",
        "javascript:alert(1)", "/a\r\nSet-Cookie: x=y", "evil.example", "/\t/evil.example", "", "/ü",
        "///evil.example",
    ],
)  # fmt: skip
async def test_a_sign_in_leads_nowhere_else(sign_in: SignIn, target: str) -> None:
    assert safe_path(target) == "/"
    async with same_origin(app_with(sign_in)) as http:
        answer = await log_in(http, next=target)
        again = await http.get("/login", params={"next": target})
    assert answer.headers["Location"] == "/"
    assert again.headers["Location"] == "/"
    names = [each.partition("=")[0] for each in answer.headers.get_list("Set-Cookie")]
    assert names == ["graphile_worker_session", "graphile_worker_browser"]


async def test_failures_are_in_the_audit_and_in_the_log(
    sign_in: SignIn, database_url: str, connection: asyncpg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    app = AdminApp([Database(connection_string=database_url)], authorize=sign_in)
    async with same_origin(app) as http:
        await log_in(http, user="mallory\nforged line", password="not to be logged")
    await app.aclose()
    row = await connection.fetchrow("select * from graphile_worker._private_py_audit")
    assert row is not None
    assert row["action"] == "sign_in_refused"
    assert "mallory" in row["target"]
    assert "mallory\\nforged line" in caplog.text
    assert "not to be logged" not in caplog.text + str(dict(row))


# -- sessions ----------------------------------------------------------------------------------------------


async def test_a_session_ends_after_twelve_hours(sign_in: SignIn, clock: FakeClock) -> None:
    async with same_origin(app_with(sign_in)) as http:
        await log_in(http)
        await clock.advance(LASTS - 1)
        assert (await http.get(SESSION)).status_code == 200
        await clock.advance(1)
        assert (await http.get(SESSION)).status_code == 401


async def test_signing_out_ends_the_session_also_for_a_copy_of_the_cookie(sign_in: SignIn) -> None:
    app = app_with(sign_in)
    async with same_origin(app) as http, same_origin(app) as thief:
        await log_in(http)
        thief.cookies.update(http.cookies)
        assert (await thief.get(SESSION)).status_code == 200
        answer = await http.post("/logout")
        assert answer.headers["Location"] == "/login"
        assert "Max-Age=0" in answer.headers["Set-Cookie"]
        assert (await thief.get(SESSION)).status_code == 401
        assert (await http.get(SESSION)).status_code == 401


async def test_a_session_that_was_signed_out_stays_so_after_a_restart(hashed: str, database_url: str) -> None:
    clock = FakeClock(datetime.now(UTC))

    def restarted() -> AdminApp:
        sign_in = SignIn(users={"ada": f"operator:{hashed}"}, secret=SECRET, clock=clock)
        return AdminApp([Database(connection_string=database_url)], authorize=sign_in)

    app = restarted()
    async with same_origin(app) as http, same_origin(app) as other:
        await log_in(http)
        await log_in(other)
        ended, kept = dict(http.cookies), dict(other.cookies)
        await http.post("/logout")
    await app.aclose()
    await clock.advance(60)
    app = restarted()
    for cookies, status in ((ended, 401), (kept, 200)):
        async with same_origin(app) as http:
            http.cookies.update(cookies)
            assert (await http.get(SESSION)).status_code == status
    async with same_origin(app) as http:
        http.cookies.update(kept)
        assert "sign_out" in (await http.get("/api/v1/audit")).text
    await app.aclose()


async def test_a_changed_password_a_changed_role_and_a_removed_user_end_sessions(
    sign_in: SignIn, hashed: str, clock: FakeClock
) -> None:
    async with same_origin(app_with(sign_in)) as http:
        await log_in(http)
        cookies = dict(http.cookies)
    other = hash_password(PASSWORD)
    for users, status in (
        ({"ada": f"operator:{hashed}"}, 200),
        ({"ada": f"operator:{other}"}, 401),
        ({"ada": f"admin:{hashed}"}, 401),
        ({"eve": f"operator:{hashed}"}, 401),
    ):
        again = SignIn(users=users, secret=SECRET, clock=clock)
        async with same_origin(app_with(again)) as http:
            http.cookies.update(cookies)
            assert (await http.get(SESSION)).status_code == status, users
    async with same_origin(app_with(SignIn(users={"ada": f"operator:{hashed}"}, clock=clock))) as http:
        http.cookies.update(cookies)  # signed with another secret
        assert (await http.get(SESSION)).status_code == 401


async def test_a_session_that_was_made_up_is_worth_nothing(sign_in: SignIn) -> None:
    app = app_with(sign_in)
    async with same_origin(app) as http:
        await log_in(http)
        name, value = next(iter(http.cookies.items()))
    content, _, mac = value.rpartition(".")
    forged = [f"{content}.", f".{mac}", f"{content}A.{mac}", value[:-1], "", "x" * 10_000,
              app.signer.sign("notice", {"text": "x"})]  # fmt: skip
    for each in forged:
        async with same_origin(app, Cookie=f"{name}={each}") as http:
            assert (await http.get(SESSION)).status_code == 401, each


async def test_a_session_from_before_the_sign_in_is_not_taken_over(sign_in: SignIn) -> None:
    async with same_origin(app_with(sign_in)) as http:
        await log_in(http, user="eve")
        planted = dict(http.cookies)
        await log_in(http)
        assert dict(http.cookies) != planted
        assert (await http.get(SESSION)).json()["user"] == "ada"


async def test_a_link_from_another_site_finds_the_session_by_a_refresh(sign_in: SignIn) -> None:
    headers = {"Accept": "text/html", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"}
    async with client(app_with(sign_in)) as http:
        answer = await http.get('/jobs?q="><script>', headers=headers)
        script = await http.get("/", headers=headers | {"Sec-Fetch-Dest": "empty"})
    assert answer.status_code == 200
    assert 'http-equiv="refresh" content="0; url=/jobs?q=%22%3E%3Cscript%3E"' in answer.text
    assert script.status_code == 401


# -- the one-time link -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["//evil.example", "//evil.example/", "/%5cevil.example", "/%09/evil.example"]
)
async def test_a_link_from_another_site_leads_nowhere_else(sign_in: SignIn, path: str) -> None:
    app = app_with(sign_in)
    for site in ("cross-site", "none"):
        async with client(app, **{"Sec-Fetch-Site": site}) as http:
            answer = await http.get(f"http://localhost{path}")
        assert "evil" not in answer.text + answer.headers.get("location", ""), path


async def test_a_proxy_may_pass_on_the_password_that_it_has_checked(clock: FakeClock) -> None:
    sign_in = SignIn(header="X-Forwarded-User", clock=clock)
    app = app_with(sign_in)
    headers = {"X-Forwarded-User": "ada", "Authorization": "Basic YWRhOng="}
    async with client(app, **headers) as http:
        found = (await http.get("/api/v1/session")).json()
    assert found["user"] == "ada"


async def test_the_link_signs_in_once(clock: FakeClock) -> None:
    sign_in = SignIn(clock=clock)
    secret = sign_in.make_link("ada")
    app = app_with(sign_in)
    async with same_origin(app) as http, same_origin(app) as late:
        form = await http.get("/login")
        assert "data-one-time-link" in form.text
        assert secret not in form.text
        assert (await http.post("/login", data={"token": "wrong"})).status_code == 401
        answer = await http.post("/login", data={"token": secret})
        assert answer.status_code == 303
        assert (await http.get(SESSION)).json()["user"] == "ada"
        refused = await late.post("/login", data={"token": secret})
        assert refused.status_code == 401
        assert "has been used" in refused.text
        assert (await http.get(SESSION)).status_code == 200


async def test_of_two_at_once_one_gets_in(clock: FakeClock) -> None:
    sign_in = SignIn(clock=clock)
    secret = sign_in.make_link()
    async with same_origin(app_with(sign_in)) as http:
        both = [http.post("/login", data={"token": secret}) for _ in range(4)]
        answers = await asyncio.gather(*both)
    assert sorted(answer.status_code for answer in answers) == [303, 401, 401, 401]


# -- tokens ------------------------------------------------------------------------------------------------


async def test_tokens_have_their_own_roles_and_need_no_origin(clock: FakeClock) -> None:
    token, metrics = new_token(), new_token()
    tokens = {"ci": f"operator:{hash_token(token)}", "prometheus": f"metrics:{hash_token(metrics)}"}
    async with client(app_with(SignIn(tokens=tokens, clock=clock))) as http:

        def bearer(text: str) -> dict[str, str]:
            return {"Authorization": f"Bearer {text}"}

        assert (await http.get(SESSION, headers=bearer(token))).json()["user"] == "ci"
        assert (await http.get(SESSION, headers=bearer(metrics))).json()["permissions"] == ["metrics.read"]
        for wrong in (new_token(), "", hash_token(token), "a b"):
            assert (await http.get(SESSION, headers=bearer(wrong))).status_code == 401
        basic = await http.get(SESSION, headers={"Authorization": f"Basic {token}"})
        assert basic.status_code == 401
        form = await http.post("/logout", headers=bearer(token))
    assert form.status_code == 403


async def test_a_token_beside_a_session_counts(sign_in: SignIn) -> None:
    async with same_origin(app_with(sign_in)) as http:
        await log_in(http)
        answer = await http.get(SESSION, headers={"Authorization": "Bearer wrong"})
    assert answer.status_code == 401


async def test_the_metrics_have_a_token_of_their_own() -> None:
    app = AdminApp(
        [Database(connection_string=NOWHERE)],
        authorize=lambda request: None,
        settings=AppSettings(metrics_token="only for numbers"),
    )
    good = {"Authorization": "Bearer only for numbers"}
    async with client(app) as http:
        assert (await http.get("/metrics")).status_code == 401
        assert (await http.get("/metrics", headers=good)).status_code in (200, 404, 503)
        assert (await http.get(SESSION, headers=good)).status_code == 401
        assert (await http.get("/", headers=good)).status_code == 401


# -- limits ------------------------------------------------------------------------------------------------


async def test_failures_lead_to_pauses_that_grow(sign_in: SignIn, clock: FakeClock) -> None:
    async with same_origin(app_with(sign_in)) as http:
        for _ in range(5):
            assert (await log_in(http, password="wrong")).status_code == 401
        refused = await log_in(http)
        assert refused.status_code == 429
        assert int(refused.headers["Retry-After"]) >= 1
        assert "Too many attempts" in refused.text
        await clock.advance(2)
        assert (await log_in(http, password="wrong")).status_code == 401
        assert int((await log_in(http)).headers["Retry-After"]) >= 2
        await clock.advance(60)
        assert (await log_in(http)).status_code == 303
        assert (await log_in(http, password="wrong")).status_code == 401  # counted from the beginning


def from_address(app: AdminApp, address: str) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, client=(address, 1234))
    headers = {"Sec-Fetch-Site": "same-origin"}
    return httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers)


async def test_nobody_is_kept_out_of_where_they_have_signed_in_before(
    sign_in: SignIn, clock: FakeClock
) -> None:
    app = app_with(sign_in)
    async with from_address(app, "10.0.0.1") as http:
        assert (await log_in(http)).status_code == 303
    checked = 0
    for number in range(40):
        async with from_address(app, f"192.0.2.{number}") as stranger:
            checked += (await log_in(stranger, password="wrong")).status_code == 401
        async with from_address(app, "10.0.0.1") as http:
            assert (await log_in(http)).status_code == 303, number
        await clock.advance(1)
    # Many addresses together get little more than one: five, and one after each pause, which grows.
    assert checked <= 12
    async with from_address(app, "10.0.0.2") as http:
        assert (await log_in(http)).status_code == 429


async def test_the_addresses_of_people_are_remembered_in_bounded_memory(
    sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    from graphile_worker.admin.security import sign_in as module

    monkeypatch.setattr(module, "MAX_KNOWN", 3)
    for number in range(10):
        sign_in.attempts.begin(f"10.0.0.{number}", "ada")
        sign_in.attempts.succeeded(f"10.0.0.{number}", "ada")
    assert len(sign_in.attempts._known) == 3


def test_an_unknown_user_costs_as_much_as_a_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from graphile_worker.admin.security import passwords

    users = {}
    for name, cost in (("ada", 2**11), ("eve", 2**12)):
        monkeypatch.setattr(passwords, "COST", (cost, 8, 1))
        users[name] = f"viewer:{hash_password(PASSWORD)}"
    sign_in = SignIn(users=users, secret=SECRET)
    for number in range(50):
        name = f"nobody {number}"
        assert sign_in.hash_for(name) in {text.partition(":")[2] for text in users.values()}
        assert sign_in.hash_for(name) == sign_in.hash_for(name)
    assert sign_in.hash_for("ada") == users["ada"].partition(":")[2]


async def test_many_attempts_at_once_do_not_all_get_through(sign_in: SignIn) -> None:
    async with same_origin(app_with(sign_in)) as http:
        answers = await asyncio.gather(*[log_in(http, password=str(number)) for number in range(12)])
    assert sorted(answer.status_code for answer in answers) == [401] * 5 + [429] * 7


async def test_two_passwords_are_checked_at_a_time(sign_in: SignIn, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    from graphile_worker.admin.security import sign_in as module

    begun: list[str] = []
    go_on = threading.Event()

    def watched(password: str, text: str) -> bool:
        begun.append(password)
        go_on.wait(2 * PATIENCE)
        return False

    monkeypatch.setattr(module, "matches", watched)
    async with same_origin(app_with(sign_in)) as http, asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(log_in(http, user=f"user {number}"))
        try:
            await until(lambda: len(begun) >= 2 and sign_in.computations.waiting >= 2)
            assert len(begun) == 2
        finally:
            go_on.set()
    assert len(begun) == 4


def test_failures_are_counted_by_address_and_by_user_in_bounded_memory(clock: FakeClock) -> None:
    attempts = SignInAttempts(clock)
    for number in range(MAX_ENTRIES + 10):
        attempts.begin(f"10.0.{number >> 8}.{number & 255}")
    assert len(attempts._failures) == MAX_ENTRIES
    assert address_key("2001:db8::1") == address_key("2001:db8::2")
    assert address_key("2001:db8:0:1::1") != address_key("2001:db8::1")
    assert address_key("::ffff:10.0.0.1") == address_key("10.0.0.1")
    assert address_key("10.0.0.1") != address_key("10.0.0.2")


# -- hashes ------------------------------------------------------------------------------------------------


def test_hashes_are_checked(hashed: str) -> None:
    assert matches(PASSWORD, hashed)
    assert not matches("wrong", hashed)
    assert not matches(PASSWORD + "x" * 2000, hashed)
    assert hash_password(PASSWORD) != hashed
    check_password_hash(hashed)
    parts = hashed.split("$")
    for bad in (
        "",
        "plain text",
        "$".join(["scrypt", "1048576", *parts[2:]]),
        "$".join(["scrypt", "3", *parts[2:]]),
    ):
        with pytest.raises(ConfigError):
            check_password_hash(bad)


@pytest.mark.parametrize(
    ("users", "message"),
    [
        ({"ada": "boss:scrypt$1"}, "users: ada: expected a role"),
        ({"ada": "admin:secret words"}, "users: ada: expected a hash"),
    ],
)
def test_a_wrong_user_is_named_without_the_secret(users: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        SignIn(users=users)
    assert "secret words" not in str(caught.value)


@pytest.fixture(autouse=True)
def _cheap_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of scrypt is not what these tests are about."""
    from graphile_worker.admin.security import passwords

    monkeypatch.setattr(passwords, "COST", (2**10, 8, 1))
