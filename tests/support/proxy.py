"""A proxy between a worker and the server, for the kinds of trouble that a server does not make by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

CHUNK = 1 << 16
ASKED = 1_000  # bytes
BACKEND_KEY = b"K\x00\x00\x00\x0c"


class Link:
    """One connection through the proxy."""

    def __init__(self) -> None:
        self.is_silent = False
        """Nothing passes any more, in neither direction, and nobody is told."""
        self.answered = b""
        """What the server has sent so far."""
        self.asked: list[bytes] = []
        """What the client has sent, each time the beginning of it."""
        self.needle: bytes | None = None
        """Cut this connection once, like `Proxy.needle`."""
        self.needle_asked: bytes | None = None
        """Cut it once in place of passing on what the client says, if that holds this."""
        self.pid = 0
        """Of the server's process."""
        self.flows = asyncio.Event()
        """While it is not set, nothing that the server says reaches the client, not even its end."""
        self.flows.set()

    @property
    def requests(self) -> int:
        """How often the client has sent something: at least once for each statement."""
        return len(self.asked)


class Proxy:
    """Passes bytes on until told otherwise."""

    def __init__(self, url: str) -> None:
        self._target = url
        self.links: list[Link] = []
        self.needle: bytes | None = None
        """Cut the connection once in place of passing on an answer that holds this."""
        self.cuts = 0
        self.is_silent = False
        """New connections are taken, and nothing is ever said on them."""
        self.is_away = False
        """New connections end at once."""
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def requests(self) -> int:
        """How often clients have sent something, on all connections."""
        return sum(link.requests for link in self.links)

    def link(self, pid: int) -> Link:
        """The connection to this process of the server."""
        (found,) = [link for link in self.links if link.pid == pid]
        return found

    async def go_away(self) -> None:
        """End all connections, and new ones until `is_away` is reset."""
        self.is_away = True
        await self.close()

    def url(self, folder: Path) -> str:
        parts = urlsplit(self._target)
        user = parts.netloc.rpartition("@")[0]
        query = urlencode({"host": str(folder), "port": 5432}, safe="/")
        return urlunsplit((parts.scheme, f"{user}@" if user else "", parts.path, query, ""))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        current = asyncio.current_task()
        assert current is not None
        self._tasks.add(current)
        with suppress(asyncio.CancelledError):  # `close` cancels it, and that is its end
            await self._serve(reader, writer)
        self._tasks.discard(current)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_away:
            writer.transport.abort()
            return
        server_reader, server_writer = await self._connect()
        link = Link()
        link.is_silent = self.is_silent
        self.links.append(link)
        there = asyncio.ensure_future(self._pass(link, reader, server_writer, is_answer=False))
        back = asyncio.ensure_future(self._pass(link, server_reader, writer, is_answer=True))
        try:
            await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (there, back):
                task.cancel()
            for end in (writer, server_writer):
                end.transport.abort()

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        parts = urlsplit(self._target)
        query = parse_qs(parts.query)
        host = query.get("host", [parts.hostname or "localhost"])[0]
        port = int(query.get("port", [parts.port or 5432])[0])
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, port)

    async def _pass(
        self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(CHUNK):
                if link.is_silent:
                    continue
                if is_answer:
                    link.pid = link.pid or pid_of(data)
                    await link.flows.wait()
                if is_answer and self.needle is not None and self.needle in data:
                    self.needle = None
                    self.cuts += 1
                    return
                if is_answer and link.needle is not None and link.needle in data:
                    link.needle = None
                    self.cuts += 1
                    return
                if not is_answer and link.needle_asked is not None and link.needle_asked in data:
                    link.needle_asked = None
                    self.cuts += 1
                    return
                if is_answer:
                    link.answered += data
                else:
                    link.asked.append(data[:ASKED])
                writer.write(data)
                await writer.drain()
        await link.flows.wait()


def pid_of(data: bytes) -> int:
    """The process that the server names after the login; 0 if this is something else."""
    place = data.find(BACKEND_KEY)
    return int.from_bytes(data[place + 5 : place + 9], "big") if place >= 0 else 0


class HalfOpenProxy(Proxy):
    """Leaves the server in the belief that a silent client is still there: its end is not passed on."""

    async def _pass(
        self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool
    ) -> None:
        await super()._pass(link, reader, writer, is_answer=is_answer)
        if link.is_silent and not is_answer:
            await asyncio.Event().wait()


@asynccontextmanager
async def proxy_to(url: str, folder: Path, *, kind: type[Proxy] = Proxy) -> AsyncIterator[tuple[Proxy, str]]:
    """A proxy on a socket in the folder, and the URL that goes through it."""
    proxy = kind(url)
    server = await asyncio.start_unix_server(proxy.serve, folder / ".s.PGSQL.5432")
    try:
        yield proxy, proxy.url(folder)
    finally:
        server.close()
        await proxy.close()
