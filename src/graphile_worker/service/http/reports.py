"""What worker processes and the process that serves HTTP for all of them say to each other."""

from __future__ import annotations

import asyncio
import struct

import msgspec

from ...metrics.families import Family
from .health import ProcessHealth

LENGTH = struct.Struct("!I")
MAX_FRAME = 64 * 1024 * 1024


class Question(msgspec.Struct):
    """Asks a worker process for its health, or for that and its metrics."""

    number: int
    with_metrics: bool = False


class WorkerReport(msgspec.Struct):
    """The answer. A process also reports when it has connected, and before it ends."""

    health: ProcessHealth
    families: list[Family] | None = None
    number: int = 0
    """Of the question; 0 if there was none."""


async def send(writer: asyncio.StreamWriter, message: Question | WorkerReport) -> None:
    """Send a message."""
    data = msgspec.msgpack.encode(message)
    writer.write(LENGTH.pack(len(data)) + data)
    await writer.drain()


async def receive(reader: asyncio.StreamReader) -> bytes:
    """The next message, encoded; raises an OSError if the other side is gone."""
    try:
        (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
        if length > MAX_FRAME:
            raise ConnectionError(f"a message of {length} bytes is too long")
        return await reader.readexactly(length)
    except asyncio.IncompleteReadError as error:
        raise ConnectionError("the other process has ended") from error
