"""The mail service, an HTTP API."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import httpx


@dataclass(frozen=True)
class Email:
    to: str
    subject: str
    text: str


class Mailer:
    """Sends e-mails. The service ignores a second request with the same key."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def send(self, email: Email, *, key: str) -> None:
        response = await self._http.post("/emails", json=asdict(email), headers={"Idempotency-Key": key})
        response.raise_for_status()
