"""`dev --no-worker`: only the database, for a worker that is started elsewhere."""

from __future__ import annotations

import asyncio

from ...service.signals import forwarded_signals
from .database import DevDatabase
from .display import Display


class NoWorker:
    """Waits in place of a worker."""

    async def run(self, database: DevDatabase, display: Display) -> int | None:
        """Wait until a signal arrives; returns it."""
        display.without_worker()
        loop = asyncio.get_running_loop()
        received = loop.create_future()

        def receive(number: int) -> None:
            if not received.done():
                received.set_result(number)

        handled = forwarded_signals()
        for number in handled:
            loop.add_signal_handler(number, receive, number)
        try:
            signal_number: int = await received
            return signal_number
        finally:
            for number in handled:
                loop.remove_signal_handler(number)
