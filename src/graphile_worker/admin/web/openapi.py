"""The OpenAPI 3.1 document of the JSON API, made from the table of routes."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from ...values import __version__
from .call import Call
from .routes import API, Route

TITLE = "Graphile Worker dashboard"
ABOUT = (
    "What the dashboard can show and do. Times are RFC 3339 in UTC, durations are seconds. Lists have "
    "`items`, `next` (the cursor for `after`, null on the last page) and sometimes `count`, which says its "
    "kind. Errors are problem documents (RFC 9457)."
)
REFERENCE = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"\{([a-z_]+)(?::([a-z]+))?\}")
_CONVERTORS = {"int": {"type": "integer"}, "float": {"type": "number"}}
_PROBLEMS = {
    "400": "A value is not valid",
    "401": "The request is not signed in",
    "403": "The permission is missing, or PostgreSQL refused",
    "404": "There is no such thing",
    "409": "Something else changed it, or has locked it",
    "413": "The body is too long",
    "415": "The body is not JSON",
    "503": "The database does not answer",
}


class ProblemDocument(msgspec.Struct, frozen=True):
    """Why a request was refused or failed (RFC 9457); some problems have further members."""

    type: str
    title: str
    status: int
    detail: str
    id: str | None = None
    """Under which the log of the dashboard has the details."""


def openapi(routes: Iterable[Route]) -> dict[str, Any]:
    """The document for the API routes among these."""
    found = [route for route in routes if route.is_api]
    given = [each for route in found for each in (route.body, route.answer) if each is not None]
    described = [*{repr(part): part for each in given for part in _parts(each)}.values(), ProblemDocument]
    schemas, components = _schemas(described)
    schema_of = dict(zip(map(repr, described), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in found:
        operations = paths.setdefault(plain_path(route.path), {})
        operations[route.method.lower()] = _operation(route, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {"title": TITLE, "version": __version__, "description": ABOUT},
        "servers": [{"url": "/"}],
        "security": [{"token": []}, {"session": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "graphile_worker_session"},
            },
            "responses": {
                f"Problem{status}": _problem(text, schema_of) for status, text in _PROBLEMS.items()
            },
        },
    }


def plain_path(path: str) -> str:
    """A path as OpenAPI writes it, without the types of its values."""
    return _PARAMETER.sub(r"{\1}", path)


def parameters_of(route: Route) -> list[dict[str, Any]]:
    """The parameters of a route, in its path and in its query string."""
    found: list[dict[str, Any]] = [
        {
            "name": name, "in": "path", "required": True,
            "schema": dict(_CONVERTORS.get(kind, {"type": "string"})),
        }
        for name, kind in _PARAMETER.findall(route.path)
    ]  # fmt: skip
    if route.query is not None:
        found += _query_parameters(route.query)
    return found


def _operation(route: Route, schema_of: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "tags": [tag_of(route)],
        "x-permission": list(route.permissions),  # of which one is needed
        "responses": _responses(route, schema_of),
    }
    parameters = parameters_of(route)
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        content = {"application/json": {"schema": _schema(route.body, schema_of)}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _responses(route: Route, schema_of: dict[str, Any]) -> dict[str, Any]:
    done: dict[str, Any] = {"description": route.summary}
    if route.streams or route.media_type != "application/json":
        media_type = "text/event-stream" if route.streams else route.media_type
        done["content"] = {media_type: {"schema": {"type": "string"}}}
    elif route.answer is not None:
        done["content"] = {"application/json": {"schema": _schema(route.answer, schema_of)}}
    expected = ["400", "401", "403", "503"]
    if "{" in route.path:
        expected.append("404")
    if route.method != "GET":
        expected += ["409", "413", "415"]
    problems = {status: {"$ref": f"#/components/responses/Problem{status}"} for status in sorted(expected)}
    return {str(route.status): done, **problems}


def _problem(text: str, schema_of: dict[str, Any]) -> dict[str, Any]:
    content = {"application/problem+json": {"schema": schema_of[repr(ProblemDocument)]}}
    return {"description": text, "content": content}


def tag_of(route: Route) -> str:
    """The subject of a route: `jobs` for `/api/v1/jobs/{id}`."""
    first = route.path.removeprefix(f"{API}/").partition("/")[0]
    return {"task": "tasks", "queue": "queues", "openapi.json": "session"}.get(first, first)


def _operation_id(route: Route) -> str:
    words = re.findall(r"[a-z0-9]+", plain_path(route.path.removeprefix(API)).lower())
    return "_".join([route.method.lower(), *words])


def _schemas(described: Sequence[Any]) -> tuple[Sequence[dict[str, Any]], dict[str, Any]]:
    found, components = msgspec.json.schema_components(
        described, schema_hook=_schema_of_others, ref_template=REFERENCE
    )
    return tuple(found), components


def _schema_of_others(type: type[Any]) -> dict[str, Any]:
    """Of types that msgspec does not know: `object` is any value."""
    if type is object:
        return {"description": "Any value."}  # an empty one would count as missing
    raise NotImplementedError(type)


def _parts(type: Any) -> tuple[Any, ...]:
    """The members of a union, which msgspec describes only if they are tagged; else the type itself."""
    return typing.get_args(type) if isinstance(type, types.UnionType) else (type,)


def _schema(type: Any, schema_of: dict[str, Any]) -> dict[str, Any]:
    found = [schema_of[repr(part)] for part in _parts(type)]
    return found[0] if len(found) == 1 else {"anyOf": found}


def _query_parameters(type: type[Any]) -> list[dict[str, Any]]:
    _, components = _schemas([type])
    own = components[type.__name__]
    required = own.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _inlined(schema, components)}
        for name, schema in own.get("properties", {}).items()
    ]


def _inlined(schema: Any, components: dict[str, Any]) -> Any:
    """A schema without references, because those of query strings are not among the components."""
    if isinstance(schema, list):
        return [_inlined(each, components) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(components[schema["$ref"].rpartition("/")[2]], components)
    return {name: _inlined(value, components) for name, value in schema.items()}


# -- route --------------------------------------------------------------------------------------------------


async def document(call: Call) -> dict[str, Any]:
    """It is made once: that takes longer than a page may."""
    made: dict[str, Any] = call.app.shared("openapi", lambda: openapi(call.app.routes))
    return {**made, "servers": [{"url": call.url("") or "/"}]}


ROUTES = [
    Route(
        f"{API}/openapi.json", document, "signed_in", "This API as an OpenAPI 3.1 document",
        answer=dict[str, Any],
    ),
]  # fmt: skip
