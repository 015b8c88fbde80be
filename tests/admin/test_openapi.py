"""The API description: made from the table of routes, valid, and true."""

from __future__ import annotations

import re

import httpx
from openapi_spec_validator import OpenAPIV31SpecValidator

from graphile_worker.admin.table import ROUTES
from graphile_worker.admin.web.openapi import openapi, plain_path
from graphile_worker.admin.web.routes import API

DOCUMENT = f"{API}/openapi.json"


async def test_the_document_is_valid_and_has_every_route(http: httpx.AsyncClient) -> None:
    answer = await http.get(DOCUMENT)
    assert answer.status_code == 200
    document = answer.json()
    OpenAPIV31SpecValidator(document).validate()
    described = {
        (method.upper(), path) for path, operations in document["paths"].items() for method in operations
    }
    assert described == {(route.method, plain_path(route.path)) for route in ROUTES if route.is_api}
    ids = [each["operationId"] for path in document["paths"].values() for each in path.values()]
    assert len(set(ids)) == len(ids)


def test_every_route_says_what_it_takes_and_returns() -> None:
    document = openapi(ROUTES)
    for route in ROUTES:
        if not route.is_api:
            continue
        operation = document["paths"][plain_path(route.path)][route.method.lower()]
        assert operation["summary"], route.path
        assert operation["x-permission"] == list(route.permissions)
        is_json = route.media_type == "application/json" and not route.streams
        assert (route.answer is not None) is is_json, f"{route.path}: give answer, or another media_type"
        if route.method != "GET":
            assert "409" in operation["responses"]
        named = set(re.findall(r"\{([a-z_]+)", route.path))
        assert named == {each["name"] for each in operation.get("parameters", ()) if each["in"] == "path"}


def test_what_a_handler_takes_is_described() -> None:
    document = openapi(ROUTES)

    def taken(path: str) -> set[str]:
        return {each["name"] for each in document["paths"][f"{API}{path}"]["get"]["parameters"]}

    assert taken("/workers") == {"order"}
    assert {"q", "tag", "outcome", "limit"} <= taken("/jobs")
    assert taken("/jobs/count") == taken("/jobs") - {"order", "after", "before", "limit", "payload", "search"}


async def test_lists_have_one_form() -> None:
    for route in ROUTES:
        fields = getattr(route.query, "__struct_fields__", ())
        if route.is_api and "after" in fields:
            assert "limit" in fields, route.path
