"""The small HTTP server: what it answers, and that no client can hold it up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest

from graphile_worker.errors import ConfigError
from graphile_worker.runner.process import http_server as http
from graphile_worker.runner.process.http_server import (
    HttpServer,
    Request,
    Response,
    bind,
    json_response,
    url_of,
)


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


GET = b"GET / HTTP/1.1\r\n\r\n"


@pytest.mark.parametrize("sent", [b"", b"GET / HTT"], ids=["silent", "slow"])
async def test_beside_connections_that_only_wait_the_oldest_one_is_closed(port: int, sent: bytes) -> None:
    """Twice as many as may be open. Whoever comes next is served, and the youngest of them still are."""
    async with AsyncExitStack() as stack, asyncio.timeout(60):
        clients = [await stack.enter_async_context(connected(port)) for _ in range(2 * http.MAX_CONNECTIONS)]
        for _, writer in clients:
            writer.write(sent)
        for _ in range(3):
            assert "200 OK" in await exchange(port, GET)
        for reader, _ in clients[: http.MAX_CONNECTIONS]:
            with suppress(ConnectionError):
                assert await reader.read() == b""
        reader, writer = clients[-1]
        writer.write(GET.removeprefix(sent))
        assert b"200 OK" in await reader.read()


async def test_a_request_is_answered_while_idle_connections_keep_coming(port: int) -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(60):
        for _ in range(20):
            for _ in range(http.MAX_CONNECTIONS // 4):
                await stack.enter_async_context(connected(port))
            assert "200 OK" in await exchange(port, GET)


async def test_who_does_not_read_is_closed_before_who_waits_for_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And without those, one that waits for an answer: a probe is never refused."""
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 2)
    began, go_on = asyncio.Semaphore(0), asyncio.Event()

    async def slow(request: Request) -> Response:
        if request.path == "/large":
            return Response(200, b"x" * 50_000_000)
        if request.path == "/slow":
            began.release()
            await go_on.wait()
        return json_response(200, {})

    listening = bind("127.0.0.1", 0)
    number = listening.getsockname()[1]
    server = HttpServer(slow)
    await server.open(listening)
    try:
        async with AsyncExitStack() as stack, asyncio.timeout(60):
            waiting, first = await stack.enter_async_context(connected(number))
            first.write(b"GET /slow HTTP/1.1\r\n\r\n")
            await began.acquire()
            large, second = await stack.enter_async_context(connected(number))
            second.write(b"GET /large HTTP/1.1\r\n\r\n")
            await large.readuntil(b"\r\n\r\n")
            assert "200 OK" in await exchange(number, GET)
            other, third = await stack.enter_async_context(connected(number))
            third.write(b"GET /slow HTTP/1.1\r\n\r\n")
            await began.acquire()
            assert "200 OK" in await exchange(number, GET)
            with suppress(ConnectionError):
                assert await waiting.read() == b""
            go_on.set()
            assert b"200 OK" in await other.read()
    finally:
        await server.close()


async def test_an_answer_that_takes_too_long_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http, "ANSWER_WITHIN", 0.05)

    async def hang(request: Request) -> Response:
        await asyncio.Event().wait()
        raise AssertionError

    listening = bind("127.0.0.1", 0)
    server = HttpServer(hang)
    await server.open(listening)
    try:
        assert "503 Service Unavailable" in await exchange(listening.getsockname()[1], GET)
    finally:
        await server.close()
    assert "GET / took longer than 0.05 seconds" in caplog.text


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
