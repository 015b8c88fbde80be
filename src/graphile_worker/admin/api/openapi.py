"""`/api/v1/openapi.json`: the API described for machines."""

from __future__ import annotations

from typing import Any

from ..call import Call
from ..openapi import openapi
from ..routes import API, Route


async def document(call: Call) -> dict[str, Any]:
    return openapi(call.app.routes, server=call.url(""))


ROUTES = [
    Route(
        method="GET", path=f"{API}/openapi.json", handler=document, permission="signed_in",
        answer=dict[str, Any], summary="This API as an OpenAPI 3.1 document",
    ),
]  # fmt: skip
