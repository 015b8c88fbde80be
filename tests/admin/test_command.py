"""`graphile-worker admin`: refusals, the process with its link, and its end."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from graphile_worker.admin.security.passwords import check_password_hash, hash_token
from graphile_worker.admin.standalone import RefusedError, split_schema, standalone
from graphile_worker.cli.main import run_main
from graphile_worker.config import resolve_settings
from graphile_worker.config.settings import AdminOptions, split_address
from graphile_worker.errors import ConfigError
from support.command_line import COMMAND, clean_environment
from support.working import PATIENCE

from .callers import NOWHERE


@dataclass
class Dashboard:
    process: asyncio.subprocess.Process
    url: str
    token: str


@asynccontextmanager
async def dashboard(database_url: str, folder: Path, *arguments: str) -> AsyncIterator[Dashboard]:
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "admin", "-c", database_url, "--listen", "127.0.0.1:0", *arguments,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder, env=clean_environment(),
    )  # fmt: skip
    assert process.stdout is not None
    try:
        line = (await process.stdout.readline()).decode().strip()
        address, _, token = line.partition("/login#token=")
        yield Dashboard(process, address, token)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_the_link_signs_in_and_sigterm_ends_open_streams(database_url: str, tmp_path: Path) -> None:
    async with dashboard(database_url, tmp_path) as running:
        headers = {"Sec-Fetch-Site": "same-origin"}
        async with httpx.AsyncClient(base_url=running.url, headers=headers, timeout=PATIENCE) as http:
            assert len(running.token) > 40
            assert (await http.get("/api/v1/session")).status_code == 401
            rebound = await http.get("/", headers={"Host": "evil.example"})
            assert rebound.status_code == 421
            signed_in = await http.post("/login", data={"token": running.token})
            assert signed_in.status_code == 303
            assert "server" not in signed_in.headers
            assert (await http.get("/")).status_code == 200
            async with http.stream("GET", "/api/v1/events?topics=overview") as stream:
                chunks = stream.aiter_text()
                assert "retry:" in await anext(chunks)
                running.process.send_signal(signal.SIGTERM)
                out, err = await asyncio.wait_for(running.process.communicate(), PATIENCE)
                async for _ in chunks:
                    pass  # the server has ended the stream
        assert running.process.returncode in (-signal.SIGTERM, 128 + signal.SIGTERM)
        assert out == b""
        assert running.token.encode() not in err
        assert b"Traceback" not in err, err.decode()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--listen", "0.0.0.0:5678"], "tunnel"),
        (["--listen", "0.0.0.0:5678", "--no-auth"], "loopback only"),
        (["--listen", "[::]:5678", "--auth", "token"], "no credentials"),
        (["--auth", "password"], "GRAPHILE_WORKER_ADMIN_PASSWORD"),
        (["--auth-header", "X-User"], "--trusted-proxy"),
        (["--auth", "header"], "--auth-header"),
        (["--no-auth", "--auth", "password"], "cannot be combined"),
        (["--database", "a=postgres:///a"], "either --connection or --database"),
        (["--database", "postgres:///a"], "expected NAME=URL"),
    ],
)
def test_what_would_be_open_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert run_main(["admin", "-c", NOWHERE, *arguments]) == 2
    assert message in capsys.readouterr().err


def test_an_address_in_use_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert run_main(["admin", "-c", NOWHERE, "--no-auth", "--listen", address]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"cannot listen on {address}: Address already in use; choose another address with --listen" in line


def test_passwords_off_loopback_need_host_names_or_a_proxy() -> None:
    options = AdminOptions(password="x", listen="0.0.0.0:5678")
    place = {"host": "0.0.0.0", "port": 5678, "connection_string": NOWHERE}
    with pytest.raises(RefusedError, match="--allowed-host"):
        standalone(options, **place)  # type: ignore[arg-type]
    standalone(AdminOptions(password="x", allowed_hosts=["jobs.example"]), **place)  # type: ignore[arg-type]
    standalone(AdminOptions(password="x", trusted_proxies=["10.0.0.1"]), **place)  # type: ignore[arg-type]


async def test_the_configured_password_is_that_of_admin() -> None:
    built = standalone(
        AdminOptions(password="open sesame"), host="127.0.0.1", port=5678, connection_string=NOWHERE
    )
    assert built.link == ""
    assert built.url("127.0.0.1", 5678) == "http://127.0.0.1:5678/"
    headers = {"Sec-Fetch-Site": "same-origin"}
    transport = httpx.ASGITransport(built.app)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://localhost:5678", headers=headers
    ) as http:
        answer = await http.post("/login", data={"password": "open sesame"})
        assert answer.status_code == 303
        found = (await http.get("/api/v1/session")).json()
    assert found["user"] == "admin"
    assert "jobs.delete" in found["permissions"]


async def test_no_auth_still_checks_host_and_origin() -> None:
    built = standalone(AdminOptions(auth="none"), host="127.0.0.1", port=5678, connection_string=NOWHERE)
    transport = httpx.ASGITransport(built.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost:5678") as http:
        assert (await http.get("/api/v1/session")).status_code == 200
        assert (await http.get("/api/v1/session", headers={"Host": "evil.example:5678"})).status_code == 421
        foreign = {"Origin": "http://evil.example"}
        assert (await http.post("/api/v1/jobs/actions", json={}, headers=foreign)).status_code == 403


def test_hash_and_token_print_lines_for_the_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import tomllib

    import click

    monkeypatch.setattr(click, "prompt", lambda *_, **__: "a password")
    assert run_main(["admin", "hash", "ada@example.com", "--role", "operator"]) == 0
    user = tomllib.loads(capsys.readouterr().out)["ada@example.com"]
    role, _, hashed = user.partition(":")
    assert role == "operator"
    check_password_hash(hashed)
    answers = iter(["viewer", "a password"])
    monkeypatch.setattr(click, "prompt", lambda *_, **__: next(answers))
    assert run_main(["admin", "hash", "eve"]) == 0  # nobody is an admin by default
    assert tomllib.loads(capsys.readouterr().out)["eve"].startswith("viewer:")
    assert run_main(["admin", "token", "ci"]) == 0
    printed = capsys.readouterr()
    token = printed.err.removeprefix("token: ").strip()
    assert tomllib.loads(printed.out)["ci"] == f"viewer:{hash_token(token)}"
    assert run_main(["admin", "token", 'a "name"']) == 0
    assert list(tomllib.loads(capsys.readouterr().out)) == ['a "name"']
    assert run_main(["admin", "token", "ci", "--json"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert (found["name"], found["value"]) == ("ci", f"viewer:{hash_token(found['token'])}")
    assert printed.err == ""


def test_the_table_admin_of_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "graphile_worker.toml"
    path.write_text(
        "[admin]\nlisten = '127.0.0.1:8000'\nallowed_hosts = ['a.example']\nread_only = true\n"
        "[admin.users]\n'ada.lovelace' = 'admin:scrypt$…'\n[admin.databases]\nshop = 'postgres://u:pw@h/shop'\n"
    )
    environment = {"GRAPHILE_WORKER_ADMIN_TRUSTED_PROXIES": "10.0.0.0/8, 192.0.2.1",
                   "GRAPHILE_WORKER_ADMIN_PASSWORD": "not to be shown"}  # fmt: skip
    found = resolve_settings({}, environment, tmp_path).admin
    assert found.allowed_hosts == ["a.example"]
    assert found.users == {"ada.lovelace": "admin:scrypt$…"}
    assert found.trusted_proxies == ["10.0.0.0/8", "192.0.2.1"]
    assert found.password == "not to be shown"
    assert run_main(["config", "-C", str(path), "--json"]) == 0
    shown = capsys.readouterr().out
    assert "scrypt" not in shown
    assert "pw" not in shown
    path.write_text("[admin]\npassword = 12345\n")
    with pytest.raises(ConfigError, match=r"admin\.password: expected text") as caught:
        resolve_settings({}, {}, tmp_path)
    assert "12345" not in str(caught.value)
    path.write_text("[admin]\nlistening = 'x'\n")
    with pytest.raises(ConfigError, match=r"did you mean 'admin\.listen'"):
        resolve_settings({}, {}, tmp_path)


def test_addresses_and_schemas_are_split() -> None:
    assert split_address("127.0.0.1:80") == ("127.0.0.1", 80)
    assert split_address(":8080") == ("127.0.0.1", 8080)
    assert split_address("8080") == ("127.0.0.1", 8080)
    assert split_address("[::1]:8080") == ("::1", 8080)
    for bad in ("127.0.0.1:x", "127.0.0.1:99999"):
        with pytest.raises(ConfigError, match=r"admin\.listen"):
            split_address(bad)
    assert split_schema("postgres://h/d?schema=other&sslmode=require") == (
        "postgres://h/d?sslmode=require", "other"
    )  # fmt: skip
    assert split_schema("shop") == ("shop", None)


def test_without_the_extra_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['starlette'] = None\n"
        "from graphile_worker.cli.main import run_main\n"
        "sys.exit(run_main(['admin', '-c', 'postgres:///x']))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=clean_environment()
    )
    assert result.returncode == 1
    assert "pip install 'graphile-worker[admin]'" in result.stderr
