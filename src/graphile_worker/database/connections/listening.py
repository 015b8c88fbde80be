"""LISTEN on several channels in one round trip: the driver's own method takes two for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from .connection import Connection


async def listen(
    connection: Connection, channels: Iterable[str], callback: Callable[..., Any], settings: str = ""
) -> None:
    """Call `callback` for notifications on these channels; `settings` is a statement that is sent along.

    All of it is one transaction. LISTEN comes first, so that lists of sessions show it.
    """
    await connection.execute("; ".join((*(f'listen "{name}"' for name in channels), settings)))
    with suppress(AttributeError):  # if the driver's internals have changed, it sends LISTEN again
        for name in channels:
            connection._listeners.setdefault(name, set())  # type: ignore[attr-defined]
    for name in channels:
        await connection.add_listener(name, callback)


async def unlisten(connection: Connection, channels: Iterable[str], callback: Callable[..., Any]) -> None:
    """End what `listen` has begun."""
    await connection.execute("; ".join(f'unlisten "{name}"' for name in channels))
    with suppress(AttributeError):
        for name in channels:
            connection._listeners.pop(name, None)  # type: ignore[attr-defined]
    for name in channels:
        await connection.remove_listener(name, callback)
