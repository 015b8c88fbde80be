"""Probes of the connection: clock difference, pooler, LISTEN."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import Any

from ..clock import Clock
from ..db.connection import Connection
from ..db.errors import sqlstate_of
from ..queries.ping import ping
from .connection_checks import ConnectionFacts
from .facts import moment

ATTEMPTS = 3
LISTEN_TIMEOUT = 3.0


async def probe(connection: Connection, other: Connection, clock: Clock) -> ConnectionFacts:
    """Run all probes on two connections to the same server."""
    difference, uncertainty = await clock_difference(connection, clock)
    switches = await switches_sessions(connection, other)
    pid = (await moment(connection)).pid
    return ConnectionFacts(
        clock_difference=difference,
        clock_uncertainty=uncertainty,
        # A pooler invents the process id that it reports to its clients.
        has_pooler=switches or pid != connection.get_server_pid(),
        switches_sessions=switches,
        listen_seconds=await listen_seconds(connection, other),
    )


async def clock_difference(connection: Connection, clock: Clock) -> tuple[float, float]:
    """Seconds that the server's clock is ahead, and the uncertainty; from the fastest of several attempts."""
    best: tuple[float, float] | None = None
    for _ in range(ATTEMPTS):
        before, asked = clock.now().timestamp(), clock.monotonic()
        at = (await moment(connection)).at
        half = (clock.monotonic() - asked) / 2
        if best is None or half < best[1]:
            best = (at - (before + half), half)
    return best or (0.0, 0.0)


async def switches_sessions(connection: Connection, other: Connection) -> bool:
    """Whether a connection gets another session of the server while its previous one is in use."""
    before = (await moment(connection)).pid
    # A pooler in transaction mode assigns the session that was released last. So the other connection gets
    # ours for its transaction, and we get a different one.
    async with other.transaction():
        await moment(other)
        after = (await moment(connection)).pid
    return before != after


async def listen_seconds(connection: Connection, other: Connection) -> float | None:
    """Latency of a notification; None if it does not arrive."""
    loop = asyncio.get_running_loop()
    received = asyncio.Event()
    channel = f"doctor:{os.urandom(8).hex()}"

    def receive(*_: Any) -> None:
        received.set()

    try:
        await connection.add_listener(channel, receive)
        began = loop.time()
        await ping(other, channel)
        async with asyncio.timeout(LISTEN_TIMEOUT):
            await received.wait()
        return loop.time() - began
    except TimeoutError:
        return None
    except Exception as error:
        if sqlstate_of(error) is None:
            raise
        return None  # some poolers refuse LISTEN
    finally:
        with suppress(Exception):
            await connection.remove_listener(channel, receive)
