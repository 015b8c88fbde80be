"""The small HTTP server: what it answers, and that no client can hold it up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from graphile_worker.errors import ConfigError
from graphile_worker.service.http import server as http
from graphile_worker.service.http.server import HttpServer, Request, Response, bind, json_response, url_of


async def handler(request: Request) -> Response:
    if request.path == "/broken":
        raise ValueError("a fault")
    return json_response(200, {"path": request.path, "query": request.query})


@pytest.fixture
async def port() -> AsyncIterator[int]:
    listening = bind("127.0.0.1", 0)
    number = listening.getsockname()[1]
    server = HttpServer(handler)
    await server.open(listening)
    yield number
    await server.close()
    with pytest.raises(OSError, match=r"refused|Connect call failed"):
        await asyncio.open_connection("127.0.0.1", number)


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def exchange(port: int, data: bytes) -> str:
    """What the server sends until it closes the connection."""
    async with asyncio.timeout(60), connected(port) as (reader, writer):
        writer.write(data)
        return (await reader.read()).decode()


async def test_requests_that_are_answered(port: int) -> None:
    got = await exchange(port, b"GET /a%20b?verbose&x=1 HTTP/1.1\r\nHost: h\r\n\r\n")
    assert got.startswith("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
    assert "Connection: close" in got
    assert got.endswith('{"path":"/a%20b","query":{"verbose":"","x":"1"}}\n')
    head = await exchange(port, b"HEAD /path HTTP/1.0\r\n\r\n")
    assert "Content-Length: 28" in head
    assert head.endswith("\r\n\r\n")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405 Method Not Allowed"),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", "400 Bad Request"),
        (b"GET http://else/ HTTP/1.1\r\n\r\n", "400 Bad Request"),
        (b"GET / HTTP/2.0\r\n\r\n", "400 Bad Request"),
        (b"GET //[ HTTP/1.1\r\n\r\n", "200 OK"),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n", "431 Request Header Fields Too Large"),
        (b"GET /broken HTTP/1.1\r\n\r\n", "500 Internal Server Error"),
    ],
)
async def test_other_requests(port: int, data: bytes, status: str, caplog: pytest.LogCaptureFixture) -> None:
    assert (await exchange(port, data)).startswith(f"HTTP/1.1 {status}\r\n")
    assert ("GET /broken failed" in caplog.text) == (status[:3] == "500")


async def test_slow_clients_are_sent_away_and_delay_no_other(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(port) as (reader, writer):
        writer.write(b"GET / HTT")
        assert "200 OK" in await exchange(port, b"GET / HTTP/1.1\r\n\r\n")
        monkeypatch.setattr(http, "READ_WITHIN", 0.05)
        late = await exchange(port, b"GET / HTT")
        assert "408 Request Timeout" in late
        assert not reader.at_eof()  # the first one still has its time


async def test_there_are_at_most_so_many_connections(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 1)
    async with connected(port) as (_, writer):
        writer.write(b"GET / HTT")
        async with asyncio.timeout(60):
            while True:  # until the first one is accepted
                try:
                    if not await exchange(port, b"GET / HTTP/1.1\r\n\r\n"):
                        break
                except ConnectionError:
                    break
        writer.write(b"P/1.1\r\n\r\n")
    async with asyncio.timeout(60):
        while True:
            try:
                if "200 OK" in await exchange(port, b"GET / HTTP/1.1\r\n\r\n"):
                    return
            except ConnectionError:
                await asyncio.sleep(0.01)


def test_a_port_in_use_and_an_unknown_address_are_named() -> None:
    listening = bind("127.0.0.1", 0)
    try:
        port = listening.getsockname()[1]
        assert url_of(listening) == f"http://127.0.0.1:{port}"
        with pytest.raises(ConfigError, match=f"http_port: cannot listen on port {port} of 127.0.0.1"):
            bind("127.0.0.1", port)
    finally:
        listening.close()
    with pytest.raises(ConfigError, match="http_address: 'not an address'"):
        bind("not an address", 0)
