"""The bank, an HTTP API: authorize a payment now, capture it later."""

from __future__ import annotations

import httpx


class DeclinedError(Exception):
    """The bank refuses the card. Another attempt would not help."""


class Bank:
    """Reserves and collects money. An authorization that is not captured expires."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def authorize(self, card: str, cents: int) -> str:
        """Reserve the amount; returns the id of the authorization."""
        response = await self._http.post("/authorizations", json={"card": card, "cents": cents})
        return str(_checked(response).json()["id"])

    async def capture(self, authorization: str) -> None:
        """Collect what was reserved. To capture twice has no effect, so attempts may be repeated."""
        _checked(await self._http.post(f"/authorizations/{authorization}/capture"))


def _checked(response: httpx.Response) -> httpx.Response:
    if response.status_code == httpx.codes.PAYMENT_REQUIRED:
        raise DeclinedError(response.json()["detail"])
    return response.raise_for_status()
