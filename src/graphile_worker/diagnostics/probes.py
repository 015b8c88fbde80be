"""Trying out the connection: the clocks, whether a pooler is in between, and whether LISTEN works."""

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

TRIES = 3
LISTEN_WITHIN = 3.0


async def probe(connection: Connection, other: Connection, clock: Clock) -> ConnectionFacts:
    """Everything that two connections to the same place can show."""
    difference, uncertainty = await clock_difference(connection, clock)
    switches = await switches_sessions(connection, other)
    _, pid = await moment(connection)
    return ConnectionFacts(
        clock_difference=difference,
        clock_uncertainty=uncertainty,
        # A pooler makes up the process number that it gives to its clients.
        has_pooler=switches or pid != connection.get_server_pid(),
        switches_sessions=switches,
        listen_seconds=await listen_seconds(connection, other),
    )


async def clock_difference(connection: Connection, clock: Clock) -> tuple[float, float]:
    """Seconds that the server's clock is ahead, and how far off that may be: from the quickest answer."""
    best: tuple[float, float] | None = None
    for _ in range(TRIES):
        before, asked = clock.now().timestamp(), clock.monotonic()
        at, _ = await moment(connection)
        half = (clock.monotonic() - asked) / 2
        if best is None or half < best[1]:
            best = (at - (before + half), half)
    return best or (0.0, 0.0)


async def switches_sessions(connection: Connection, other: Connection) -> bool:
    """Whether a connection is given another session of the server while the one it had is in use."""
    _, before = await moment(connection)
    # A pooler lends a session for a transaction. An idle one lends the session it got back last, so the other
    # connection now gets ours, if it can be had at all, and we get a different one.
    async with other.transaction():
        await moment(other)
        _, after = await moment(connection)
    return before != after


async def listen_seconds(connection: Connection, other: Connection) -> float | None:
    """How long a notification takes to arrive; None if it does not."""
    loop = asyncio.get_running_loop()
    heard = asyncio.Event()
    channel = f"doctor:{os.urandom(8).hex()}"

    def hear(*_: Any) -> None:
        heard.set()

    try:
        await connection.add_listener(channel, hear)
        began = loop.time()
        await ping(other, channel)
        async with asyncio.timeout(LISTEN_WITHIN):
            await heard.wait()
        return loop.time() - began
    except TimeoutError:
        return None
    except Exception as error:
        if sqlstate_of(error) is None:
            raise
        return None  # some poolers refuse LISTEN outright
    finally:
        with suppress(Exception):
            await connection.remove_listener(channel, hear)
