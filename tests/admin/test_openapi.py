"""The API description: made from the table of routes, valid, and true."""

from __future__ import annotations

import re

import httpx
from openapi_spec_validator import OpenAPIV31SpecValidator

from graphile_worker.admin import AdminApp
from graphile_worker.admin.openapi import openapi, plain_path
from graphile_worker.admin.routes import API
from graphile_worker.admin.table import ROUTES

from .callers import same_origin

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


async def test_lists_have_one_form() -> None:
    for route in ROUTES:
        fields = getattr(route.query, "__struct_fields__", ())
        if route.is_api and "after" in fields:
            assert "limit" in fields, route.path


async def test_people_can_read_it(admin: AdminApp) -> None:
    async with same_origin(admin) as http:
        page = await http.get("/api")
        same = await http.get("/api", headers={"Accept": "application/json"})
        dotted = await http.get("/api.json")
    assert page.status_code == 200
    for route in ROUTES:
        if route.is_api:
            assert f"{route.method} {plain_path(route.path)}" in page.text
    assert "style=" not in page.text
    assert same.json()["openapi"] == dotted.json()["openapi"] == "3.1.0"
