"""Waits for a server that does not accept connections yet, as when both start at the same time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ...errors import ConnectionFailedError
from ...values.text import duration

FIRST_PAUSE = 0.1  # seconds; then half as long again each time
LONGEST_PAUSE = 2.0
LAST_ATTEMPT = 1.0  # seconds that an attempt has at least
LOG_EVERY = 10.0

T = TypeVar("T")

logger = logging.getLogger("graphile_worker")


async def when_ready(connect: Callable[[], Awaitable[T]], within: float) -> T:
    """The result of `connect`, which is called again for `within` seconds while the server is away.

    Any other error is raised at once: a wrong password, a missing database and refused TLS do not pass. When
    the time is over, the last error is raised.
    """
    loop = asyncio.get_running_loop()
    began = logged = loop.time()
    pause = FIRST_PAUSE
    try:
        return await connect()
    except ConnectionFailedError as error:
        if not error.is_away or within <= 0:
            raise
        last = error
    logger.warning("waiting up to %s for the database: %s", duration(within), last)
    while (left := began + within - loop.time()) > 0:
        await asyncio.sleep(min(pause, left))
        pause = min(1.5 * pause, LONGEST_PAUSE)
        try:
            async with asyncio.timeout(max(LAST_ATTEMPT, began + within - loop.time())):
                found = await connect()
        except TimeoutError:  # the last answer says more
            pass
        except ConnectionFailedError as error:
            if not error.is_away:
                raise
            last = error
        else:
            logger.info("the database accepts connections after %s", duration(loop.time() - began))
            return found
        if loop.time() - logged >= LOG_EVERY:
            logged = loop.time()
            logger.warning("still waiting for the database, for %s now: %s", duration(logged - began), last)
    raise last
