"""`/api/v1/openapi.json`: the API described for machines."""

from __future__ import annotations

from typing import Any

from ..call import Call
from ..openapi import openapi
from ..routes import API, Route


async def document(call: Call) -> dict[str, Any]:
    return {**description(call), "servers": [{"url": call.url("") or "/"}]}


def description(call: Call) -> dict[str, Any]:
    """The document, made once: that takes longer than a page may."""
    return call.app.shared("openapi", lambda: openapi(call.app.routes))


ROUTES = [
    Route(
        method="GET", path=f"{API}/openapi.json", handler=document, permission="signed_in",
        answer=dict[str, Any], summary="This API as an OpenAPI 3.1 document",
    ),
]  # fmt: skip
