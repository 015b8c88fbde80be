"""Reverse proxies: whom the dashboard believes, and what it deletes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from graphile_worker.admin import AdminApp, Database, SignIn
from graphile_worker.admin.security.origins import HostRule
from graphile_worker.admin.security.proxies import BehindProxy
from graphile_worker.errors import ConfigError

from .callers import NOWHERE

SESSION = "/api/v1/session"
HEADER = "X-Forwarded-User"


def app(**options: Any) -> BehindProxy:
    users = {"ada": "operator"}
    sign_in = SignIn(users=users, header=HEADER)
    admin = AdminApp(
        [Database(connection_string=NOWHERE)], authorize=sign_in, hosts=HostRule.of(["jobs.example"])
    )
    return BehindProxy(admin, auth_header=HEADER, **options)


def from_peer(app: BehindProxy, address: str) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, client=(address, 1234))
    return httpx.AsyncClient(transport=transport, base_url="http://jobs.example")


async def test_the_header_counts_from_trusted_peers_only() -> None:
    behind = app(trusted=["10.0.0.0/8", "::1"])
    for peer, status in (
        ("10.1.2.3", 200),
        ("::1", 200),
        ("::ffff:10.1.2.3", 200),
        ("11.0.0.1", 401),
        ("", 401),
    ):
        async with from_peer(behind, peer) as http:
            answer = await http.get(SESSION, headers={HEADER: "ada"})
            assert answer.status_code == status, peer
    async with from_peer(behind, "10.1.2.3") as http:
        assert "jobs.retry" in (await http.get(SESSION, headers={HEADER: "ada"})).json()["permissions"]
        stranger = (await http.get(SESSION, headers={HEADER: "eve"})).json()
        assert "jobs.retry" not in stranger["permissions"]
        assert (await http.get(SESSION)).status_code == 401
        twice = await http.get(SESSION, headers=[(HEADER, "eve"), (HEADER, "ada")])
        assert twice.status_code == 401


async def test_without_a_trusted_peer_the_header_is_never_believed() -> None:
    async with from_peer(app(), "127.0.0.1") as http:
        assert (await http.get(SESSION, headers={HEADER: "ada"})).status_code == 401


async def test_a_shared_secret_takes_the_place_of_an_address() -> None:
    async with from_peer(app(secret="between us"), "192.0.2.1") as http:
        good = {HEADER: "ada", "X-Proxy-Secret": "between us"}
        assert (await http.get(SESSION, headers=good)).status_code == 200
        assert (await http.get(SESSION, headers=good | {"X-Proxy-Secret": "wrong"})).status_code == 401
        assert (await http.get(SESSION, headers={HEADER: "ada"})).status_code == 401


async def test_a_token_of_the_proxy_is_no_token_of_ours() -> None:
    """Such as oauth2-proxy passes on by --pass-authorization-header."""
    foreign = {HEADER: "ada", "Authorization": "Bearer eyJhbGciOi.J9.x"}
    async with from_peer(app(trusted=["10.0.0.1"]), "10.0.0.1") as http:
        assert (await http.get(SESSION, headers=foreign)).json()["user"] == "ada"
        assert (await http.get(SESSION, headers={"Authorization": "Bearer x"})).status_code == 401
    async with from_peer(app(trusted=["10.0.0.1"]), "10.0.0.2") as http:
        assert (await http.get(SESSION, headers=foreign)).status_code == 401


async def seen_client(*forwarded: str) -> str:
    found: list[str] = []

    async def record(scope: Any, receive: Any, send: Any) -> None:
        found.append(scope["client"][0])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async with from_peer(BehindProxy(record, trusted=["10.0.0.0/8"]), "10.0.0.1") as http:
        await http.get("/", headers=[("X-Forwarded-For", each) for each in forwarded])
    return found[0]


@pytest.mark.parametrize(
    ("forwarded", "client"),
    [
        (["203.0.113.9"], "203.0.113.9"),
        (["6.6.6.6", "203.0.113.9"], "203.0.113.9"),
        (["203.0.113.9:4711"], "203.0.113.9"),
        (["[2001:db8::1]:4711"], "2001:db8::1"),
        (["2001:DB8::1"], "2001:db8::1"),
        (['=HYPERLINK("http://evil")<script>'], "10.0.0.1"),
        (["6.6.6.6, unknown"], "10.0.0.1"),
        (["_hidden"], "10.0.0.1"),
        ([""], "10.0.0.1"),
    ],
)
async def test_only_addresses_are_taken_for_addresses(forwarded: list[str], client: str) -> None:
    assert await seen_client(*forwarded) == client


def test_no_example_for_nginx_lets_clients_choose_their_address() -> None:
    text = (Path(__file__).parents[2] / "docs/admin/reverse-proxy.md").read_text()
    examples = [block for block in text.split("```") if "proxy_pass" in block]
    assert len(examples) == 3
    for block in examples:
        assert "proxy_set_header X-Forwarded-For $remote_addr;" in block


async def test_changes_with_a_header_need_an_origin() -> None:
    async with from_peer(app(trusted=["10.0.0.1"]), "10.0.0.1") as http:
        path = "/api/v1/jobs/actions"
        assert (await http.post(path, json={}, headers={HEADER: "ada"})).status_code == 403
        own = {HEADER: "ada", "Origin": "http://jobs.example"}
        assert (await http.post(path, json={}, headers=own)).status_code == 400


async def test_forwarded_headers_are_believed_from_trusted_peers_only() -> None:
    seen: list[dict[str, Any]] = []

    async def record(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    behind = BehindProxy(record, trusted=["10.0.0.0/8"], root_path="/configured")
    headers = {
        "X-Forwarded-For": "6.6.6.6, 203.0.113.9, 10.0.0.7", "X-Forwarded-Proto": "https",
        "X-Forwarded-Host": "jobs.example", "X-Forwarded-Prefix": "/jobs/", "Forwarded": "for=6.6.6.6",
    }  # fmt: skip
    for peer in ("10.0.0.1", "203.0.113.1"):
        async with from_peer(behind, peer) as http:
            await http.get("http://inner:5678/x", headers=headers)
    trusted, other = seen
    assert trusted["client"][0] == "203.0.113.9"
    assert trusted["scheme"] == "https"
    assert (b"host", b"jobs.example") in trusted["headers"]
    assert (trusted["root_path"], trusted["path"]) == ("/jobs", "/jobs/x")
    assert other["client"][0] == "203.0.113.1"
    assert other["scheme"] == "http"
    assert (b"host", b"inner:5678") in other["headers"]
    assert (other["root_path"], other["path"]) == ("/configured", "/configured/x")
    for scope in seen:
        assert not [name for name, _ in scope["headers"] if name.startswith((b"x-forwarded", b"forwarded"))]


@pytest.mark.parametrize("prefix", ["//evil.example", "/a b", "jobs", "/a?b", "/../x\r\nX: y", "/%2e"])
async def test_a_prefix_that_is_no_path_is_ignored(prefix: str) -> None:
    async with from_peer(app(trusted=["10.0.0.1"]), "10.0.0.1") as http:
        try:
            answer = await http.get("/", headers={HEADER: "ada", "X-Forwarded-Prefix": prefix})
        except httpx.LocalProtocolError:
            return
    assert "evil" not in answer.text


async def test_hosts_are_checked_behind_a_proxy_too() -> None:
    async with from_peer(app(trusted=["10.0.0.1"]), "10.0.0.1") as http:
        answer = await http.get(SESSION, headers={HEADER: "ada", "X-Forwarded-Host": "evil.example"})
        assert answer.status_code == 421
    async with from_peer(app(trusted=["10.0.0.1"], checks_hosts=True), "10.0.0.1") as http:
        answer = await http.get(SESSION, headers={HEADER: "ada", "X-Forwarded-Host": "any.example"})
        assert answer.status_code == 200
    async with from_peer(app(trusted=["10.0.0.1"], checks_hosts=True), "10.0.0.2") as http:
        assert (await http.get(SESSION, headers={"Host": "any.example"})).status_code == 421


def test_a_network_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="trusted_proxies"):
        app(trusted=["proxy.example"])
