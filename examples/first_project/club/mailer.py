"""Sends e-mails. This one only prints them; yours would call a mail service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Mailer:
    async def send(self, to: str, text: str) -> None:
        if to.endswith("@down.example"):
            raise ConnectionError("the mail service does not answer")
        print(f"e-mail to {to}: {text}", flush=True)


@asynccontextmanager
async def open_mailer() -> AsyncIterator[Mailer]:
    """Open connections before the `yield`, and close them after it."""
    yield Mailer()
