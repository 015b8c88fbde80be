"""Finds the route of a request, and the methods that a path has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.convertors import Convertor
from starlette.routing import compile_path

from ..errors import ConfigError
from .routes import Route


@dataclass(frozen=True, slots=True)
class FoundRoute:
    """A route, and the values in its path."""

    route: Route
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Entry:
    route: Route
    pattern: re.Pattern[str]
    convertors: Mapping[str, Convertor[Any]]

    def values(self, path: str) -> dict[str, Any] | None:
        found = self.pattern.match(path)
        if found is None:
            return None
        try:
            return {name: self.convertors[name].convert(text) for name, text in found.groupdict().items()}
        except ValueError:  # a number of thousands of digits
            return None


class RouteTable:
    """The routes of one dashboard; those that write are left out of a read-only one."""

    def __init__(self, routes: Iterable[Route], *, read_only: bool = False) -> None:
        everything = list(routes)
        kept = [route for route in everything if not (read_only and route.is_write)]
        self._by_path = {route.path: route for route in kept if route.method == "GET"}
        self._json = {route.path: self._api_route(route) for route in kept if route.json_of is not None}
        documents = [_entry(api, json_path(page)) for page, api in self._json.items()]
        self._entries = [*documents, *(_entry(route, route.path) for route in kept)]
        # A path whose routes all write is known, so that the answer is 405 and not 404.
        self._removed = [_entry(route, route.path) for route in everything if route not in kept]

    def find(self, method: str, path: str) -> FoundRoute | None:
        """The route of this method and path. HEAD is served as GET."""
        wanted = "GET" if method == "HEAD" else method
        for entry in self._entries:
            if entry.route.method != wanted or (method == "HEAD" and entry.route.streams):
                continue
            if (values := entry.values(path)) is not None:
                return FoundRoute(entry.route, values)
        return None

    def methods(self, path: str) -> list[str] | None:
        """What the path can be called with; None if there is no such path."""
        found = [entry.route for entry in self._entries if entry.values(path) is not None]
        if found:
            heads = {"HEAD" for route in found if route.method == "GET" and not route.streams}
            return sorted({route.method for route in found} | heads)
        return [] if any(entry.values(path) is not None for entry in self._removed) else None

    def json_route(self, page: Route) -> Route | None:
        """The API route with the content of a page."""
        return self._json.get(page.path)

    def _api_route(self, page: Route) -> Route:
        api = self._by_path.get(page.json_of or "")
        if api is None:
            raise ConfigError(f"{page.path}: there is no API route {page.json_of}")
        return api


def json_path(page: str) -> str:
    """The path of a page's JSON: `/jobs.json`; that of the overview is `/overview.json`."""
    return "/overview.json" if page == "/" else f"{page}.json"


def _entry(route: Route, path: str) -> _Entry:
    pattern, _, convertors = compile_path(path)
    return _Entry(route, pattern, convertors)
