"""The network between one worker and the server, which can fail as networks do."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

from support.proxy import CHUNK, Proxy, pid_of

DELETED, COMMITTED = b"DELETE ", b"COMMIT\0"
IN_TRANSACTION = b"Z\0\0\0\x05T"  # the server waits for the next statement of a transaction
SERVER_NOTICES = 14.0
"""Seconds after which the server's keepalives would detect a lost client: those of a worker's lock."""


class Cut(NamedTuple):
    """A connection that was cut."""

    at: float
    """By the monotonic clock."""
    pid: int
    """Of the server's process."""


class Wire:
    """One connection through the network: the client's end and the server's."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client = client
        self.server = server
        self.is_swallowed = False
        self.pid = 0
        """Of the server's process; 0 before the login."""
        self.has_deleted = False
        """Whether the open transaction has deleted rows, as the end of a held batch does."""
        self.is_over = asyncio.Event()

    def cut_server(self) -> None:
        """The server closes the connection; the client does not notice."""
        self.server.transport.abort()

    def cut_client(self) -> None:
        """The client notices that the connection is lost."""
        self.client.transport.abort()
        self.is_over.set()


class Network(Proxy):
    """Passes everything on, until it is partitioned."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._wires: dict[Wire, None] = {}
        self._flows = asyncio.Event()
        self._flows.set()
        self._was_cut = asyncio.Event()
        self._cut: Cut | None = None
        self._half_open: list[asyncio.StreamWriter] = []

    def tcp_url(self, port: int) -> str:
        """The URL of the same database through this network."""
        parts = urlsplit(self._target)
        return f"postgresql://{quote(unquote(parts.username or 'postgres'))}@127.0.0.1:{port}{parts.path}"

    # -- trouble -------------------------------------------------------------------------------------------

    def delay(self) -> None:
        """What is sent from now on arrives when `heal` is called."""
        self._flows.clear()

    def swallow(self, *, is_noticed: bool) -> None:
        """Nothing arrives any more, silently; if `noticed`, the server closes its side."""
        self.is_silent = True
        for wire in self._wires:
            self._swallow(wire, is_noticed=is_noticed)

    def tear(self, dice: random.Random) -> None:
        """Some connections are delayed, and some the server gives up: it notices at different times."""
        self._flows.clear()
        for wire in self._wires:
            if dice.random() < 0.5:
                self._swallow(wire, is_noticed=True)

    def _swallow(self, wire: Wire, *, is_noticed: bool) -> None:
        wire.is_swallowed = True
        if is_noticed:
            wire.cut_server()

    async def cut_batch(self, *, is_committed: bool, within: float) -> Cut | None:
        """Cut the connection of the next held batch that ends; None if there was none.

        In place of passing on the answer to its commit, or to its delete.
        """
        self.needle = COMMITTED if is_committed else DELETED
        self._was_cut.clear()
        self._cut = None
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._was_cut.wait()
        self.needle = None
        return self._cut

    @property
    def sessions(self) -> list[int]:
        """The server's processes at the other end."""
        return [wire.pid for wire in self._wires if wire.pid]

    @property
    def lost_sessions(self) -> list[int]:
        """Those whose connections do not survive the trouble."""
        return [wire.pid for wire in self._wires if wire.pid and wire.is_swallowed]

    def heal(self) -> None:
        """Everything flows. Connections that lost something end; the server may go on believing in them."""
        self.is_silent = False
        self._flows.set()
        for wire in self._wires:
            if wire.is_swallowed:
                wire.cut_client()

    # -- connections ---------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await self._connect()
        except OSError:  # the server is away
            writer.transport.abort()
            return
        wire = Wire(writer, server_writer)
        wire.is_swallowed = self.is_silent
        self._wires[wire] = None
        there = asyncio.ensure_future(self._carry(wire, reader, server_writer, is_answer=False))
        back = asyncio.ensure_future(self._carry(wire, server_reader, writer, is_answer=True))
        try:
            await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self._wires[wire]
            for task in (there, back):
                task.cancel()
            writer.transport.abort()
            if wire.is_swallowed:
                self._half_open.append(server_writer)
                asyncio.get_running_loop().call_later(SERVER_NOTICES, server_writer.transport.abort)
            else:
                server_writer.transport.abort()

    async def _carry(
        self, wire: Wire, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(CHUNK):
                await self._flows.wait()
                if is_answer:
                    wire.pid = wire.pid or pid_of(data)
                if is_answer and self._is_cut_here(wire, data):
                    self.needle = None
                    self.cuts += 1
                    self._cut = Cut(time.monotonic(), wire.pid)
                    self._was_cut.set()
                    return
                if not wire.is_swallowed:
                    writer.write(data)
                    await writer.drain()
        await self._flows.wait()
        if wire.is_swallowed:
            await wire.is_over.wait()

    def _is_cut_here(self, wire: Wire, answer: bytes) -> bool:
        """Whether the connection is to be cut now; keeps track of the transactions that delete rows."""
        has_deleted = DELETED in answer and DELETED + b"0\0" not in answer and answer.endswith(IN_TRANSACTION)
        is_committed = wire.has_deleted and COMMITTED in answer
        wire.has_deleted = has_deleted or (wire.has_deleted and answer.endswith(IN_TRANSACTION))
        return (has_deleted and self.needle == DELETED) or (is_committed and self.needle == COMMITTED)

    async def close(self) -> None:
        await super().close()
        for writer in self._half_open:
            writer.transport.abort()


@asynccontextmanager
async def network_to(url: str) -> AsyncIterator[tuple[Network, str]]:
    """A network in front of the server, and the URL that goes through it."""
    network = Network(url)
    server = await asyncio.start_server(network.serve, "127.0.0.1", 0)
    try:
        yield network, network.tcp_url(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        await network.close()
