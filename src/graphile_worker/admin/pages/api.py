"""`/api`: the API described for people."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..answers import Page
from ..api.openapi import description
from ..call import Call
from ..openapi import parameters_of, permissions_of, plain_path, tag_of
from ..routes import Route


@dataclass(frozen=True, slots=True)
class Member:
    """A parameter, or a member of a body or an answer."""

    name: str
    kind: str
    is_required: bool
    place: str = ""


@dataclass(frozen=True, slots=True)
class ApiOperation:
    """One route, as the page shows it."""

    method: str
    path: str
    summary: str
    anchor: str
    permissions: list[str]
    parameters: list[Member]
    body: list[Member]
    answer: str
    answer_members: list[Member] = field(default_factory=list)


async def api_page(call: Call) -> Page:
    subjects = call.app.shared("api page", lambda: _subjects(call))
    request = call.request
    origin = f"{request.scope.get('scheme', 'http')}://{request.headers.get('host', 'localhost')}"
    values = {"subjects": subjects, "base": origin + call.url("/api/v1")}
    return Page("api.html", "API", here="about", values=values)


def _subjects(call: Call) -> dict[str, list[ApiOperation]]:
    schemas = description(call)["components"]["schemas"]
    found: dict[str, list[ApiOperation]] = {}
    for route in call.app.routes:
        if route.is_api:
            found.setdefault(tag_of(route), []).append(_operation(route, schemas))
    return dict(sorted(found.items()))


def _operation(route: Route, schemas: dict[str, Any]) -> ApiOperation:
    answer = getattr(route.answer, "__name__", "") if route.answer is not None else ""
    path = plain_path(route.path)
    return ApiOperation(
        method=route.method,
        path=path,
        summary=route.summary,
        anchor=f"{route.method.lower()}{path.replace('/', '-').replace('{', '').replace('}', '')}",
        permissions=permissions_of(route),
        parameters=[
            Member(each["name"], kind_of(each["schema"]), each["required"], each["in"])
            for each in parameters_of(route)
        ],
        body=_members(route.body, schemas),
        answer="stream" if route.streams else answer,
        answer_members=_members(route.answer, schemas),
    )


def _members(type: Any, schemas: dict[str, Any]) -> list[Member]:
    schema = schemas.get(getattr(type, "__name__", ""), {})
    required = schema.get("required", ())
    return [
        Member(name, kind_of(each), name in required) for name, each in schema.get("properties", {}).items()
    ]


def kind_of(schema: dict[str, Any]) -> str:
    """A JSON schema in a few words: `integer or null`, `list of Job`."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(kind_of(each) for each in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(str(each) for each in schema["enum"])
    if schema.get("type") == "array":
        items = schema.get("items")
        return f"list of {kind_of(items)}" if isinstance(items, dict) and items else "list"
    if schema.get("format") == "date-time":
        return "time"
    return str(schema.get("type", "any value"))


ROUTES = [
    Route(
        method="GET", path="/api", handler=api_page, permission="signed_in", summary="API documentation",
        json_of="/api/v1/openapi.json",
    ),
]  # fmt: skip
