"""A small HTTP/1.1 server for health checks and metrics: GET and HEAD, one request per connection.

It has no dependencies, and limits what a client can use: the size of a request, the time to send one and to
read the answer, and the number of connections. A new connection is never refused, because it may be the probe
that decides about a restart. If there are too many, the one that has waited longest is closed.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import IntEnum
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

import msgspec

from ...errors import ConfigError
from ...hooks.faults import is_our_end, report

MAX_HEAD = 8192  # bytes of a request line with its headers
READ_WITHIN = 5.0  # seconds for a client to send its request
ANSWER_WITHIN = 10.0  # seconds until we must have an answer
WRITE_WITHIN = 10.0  # seconds for a client to read the answer
MAX_CONNECTIONS = 64
BACKLOG = 128

REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
JSON = "application/json"

logger = logging.getLogger("graphile_worker.http")


class Request(NamedTuple):
    path: str
    query: dict[str, str]


class Response(NamedTuple):
    status: int
    body: bytes
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


Handler = Callable[[Request], Awaitable[Response]]


def json_response(status: int, value: object, *, headers: tuple[tuple[str, str], ...] = ()) -> Response:
    """A response whose body is JSON, with a line break for people who use curl."""
    return Response(status, msgspec.json.encode(value) + b"\n", headers=headers)


def problem(status: int, reason: str, *, headers: tuple[tuple[str, str], ...] = ()) -> Response:
    """A response that says what is wrong with the request."""
    return json_response(status, {"error": reason}, headers=headers)


def bind(address: str, port: int) -> socket.socket:
    """A socket that listens there; an error names the option."""
    try:
        family, *_, target = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"http_address: {address!r} is not an address of this machine: {error}") from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(target)
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise ConfigError(
            f"http_port: cannot listen on port {port} of {address}: {error.strerror or error}; choose "
            "another port, or end the program that uses it"
        ) from error
    return listening


def url_of(listening: socket.socket) -> str:
    """The address of a listening socket, for people."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _State(IntEnum):
    """What a connection waits for; the first ones are closed first."""

    REQUEST = 0
    READER = 1
    ANSWER = 2


class HttpServer:
    """Serves requests on a socket until it is closed."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._server: asyncio.Server | None = None
        self._clients: dict[asyncio.Task[None], _State] = {}  # the oldest first

    async def open(self, listening: socket.socket) -> None:
        """Begin to serve; the socket belongs to this object from now on."""
        self._server = await asyncio.start_server(self._connected, sock=listening, limit=MAX_HEAD)

    async def close(self) -> None:
        """Stop serving; requests that are being served are dropped."""
        if self._server is None:
            return
        self._server.close()
        for client in self._clients:
            client.cancel()
        if self._clients:
            await asyncio.wait(self._clients, timeout=1.0)
        self._server = None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            return
        if len(self._clients) >= MAX_CONNECTIONS:
            self._close_one()
        self._clients[task] = _State.REQUEST
        try:
            await self._serve(reader, writer, task)
        except (OSError, TimeoutError, asyncio.CancelledError):  # the client is gone, or the server closes
            writer.transport.abort()
        except BaseException as error:
            writer.transport.abort()
            if is_our_end(error):
                raise
            report(logger, "a request could not be served", error=error)
        finally:
            self._clients.pop(task, None)

    def _close_one(self) -> None:
        """Make room: close the oldest connection without a request, or else the oldest that waits."""
        oldest = min(self._clients, key=self._clients.__getitem__)
        del self._clients[oldest]
        oldest.cancel()

    def _enter(self, task: asyncio.Task[None], state: _State) -> None:
        if task in self._clients:
            self._clients[task] = state

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, task: asyncio.Task[None]
    ) -> None:
        method, response = await self._answer(reader, task)
        self._enter(task, _State.READER)
        async with asyncio.timeout(WRITE_WITHIN):
            writer.write(_head(response))
            if method != "HEAD":
                writer.write(response.body)
            await writer.drain()
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, task: asyncio.Task[None]) -> tuple[str, Response]:
        try:
            async with asyncio.timeout(READ_WITHIN):
                head = await reader.readuntil(b"\r\n\r\n")
        except TimeoutError:
            return "", problem(408, f"no complete request within {READ_WITHIN:.0f} seconds")
        except asyncio.LimitOverrunError:
            return "", problem(431, f"the request has more than {MAX_HEAD} bytes")
        except asyncio.IncompleteReadError as error:
            raise ConnectionError from error
        try:
            method, request = _parsed(head)
        except ValueError:
            return "", problem(400, "this is not an HTTP request")
        if method not in ("GET", "HEAD"):
            return method, problem(405, "use GET or HEAD", headers=(("Allow", "GET, HEAD"),))
        self._enter(task, _State.ANSWER)
        try:
            async with asyncio.timeout(ANSWER_WITHIN) as limit:
                return method, await self._handler(request)
        except BaseException as error:  # collectors of the application may raise anything
            if isinstance(error, TimeoutError) and limit.expired():
                logger.warning("%s %s took longer than %g seconds", method, request.path, ANSWER_WITHIN)
                return method, problem(503, f"no answer within {ANSWER_WITHIN:g} seconds")
            if is_our_end(error):
                raise
            report(logger, "%s %s failed", method, request.path, error=error)
            return method, problem(500, "an error occurred; the log of the worker has the details")


def _parsed(head: bytes) -> tuple[str, Request]:
    method, target, version = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
    if not method.isalpha() or not version.startswith("HTTP/1.") or not target.startswith("/"):
        raise ValueError
    url = urlsplit(f"//host{target}")
    query = dict(parse_qsl(url.query, keep_blank_values=True))
    return method, Request(url.path, query)


def _head(response: Response) -> bytes:
    lines = [
        f"HTTP/1.1 {response.status} {REASONS[response.status]}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {len(response.body)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        *(f"{name}: {value}" for name, value in response.headers),
        "Connection: close",
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
