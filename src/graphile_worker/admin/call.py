"""Call: one request, as handlers see it."""

from __future__ import annotations

import typing
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, urlencode

import msgspec
from starlette.requests import Request

from .answers import Notice, Problem, not_allowed
from .dashboard import Dashboard
from .database import Database
from .hub import Hub, hubs_of
from .identity import Identity
from .layout_context import LayoutContext
from .permissions import Permission

S = TypeVar("S", bound=msgspec.Struct)

MAX_BODY = 1024 * 1024
"""Bytes of a request body."""
MAX_FIELDS = 500
"""Fields of a form, or of a query string."""
ROOT = "graphile_worker.root"
"""Key in the scope: the root path of the whole dashboard, above that of one database."""


@dataclass(slots=True)
class Call:
    """A request that was let in: who, about which database, with which values."""

    app: Dashboard
    request: Request
    identity: Identity
    database: Database
    nonce: str
    """For `<script nonce>` of this answer."""
    notice: Notice | None = None
    """What the page before this one wants to say."""
    layout: LayoutContext | None = None
    """What the frame shows, if the answer is a page."""
    _body: bytes | None = None

    @property
    def path_values(self) -> dict[str, Any]:
        """What the path has in braces, already of the right type."""
        return dict(self.request.path_params)

    @property
    def is_signed_in(self) -> bool:
        return bool(self.identity.name)

    @property
    def address(self) -> str:
        """The address that the request came from, for the audit."""
        return self.request.client.host if self.request.client is not None else ""

    @property
    def hub(self) -> Hub:
        """Samples and live updates of the database."""
        return hubs_of(self.app).of(self.database)

    def require(self, permission: Permission) -> None:
        """Refuse unless the identity has the permission; for routes that list several."""
        if not self.identity.may(permission):
            raise not_allowed(permission)

    def may(self, permission: Permission) -> bool:
        return self.identity.may(permission)

    def url(self, path: str, **query: object) -> str:
        """The address of a path of the dashboard; what is None in the query is left out."""
        return _url(self.request.scope.get("root_path", ""), path, query)

    def app_url(self, path: str, **query: object) -> str:
        """The same for paths that do not belong to one database, such as `/login`."""
        return _url(self.request.scope.get(ROOT, ""), path, query)

    def database_url(self, database: Database, path: str = "/") -> str:
        """The address of a path of another database, for the switch between them."""
        return self.app_url(self.app.prefix_of(database) + path)

    def query(self, type: type[S]) -> S:
        """The query string as a struct; wrong values are refused by name, empty ones count as not given."""
        return _converted([pair for pair in self.request.query_params.multi_items() if pair[1]], type)

    async def form(self, type: type[S]) -> S:
        """The fields of a form as a struct; empty fields count as not given.

        A field that is a list takes all fields of its name.
        """
        body = (await self.body()).decode("utf-8", "replace")
        try:
            return _converted(parse_qsl(body, max_num_fields=MAX_FIELDS), type)
        except ValueError:
            raise Problem(400, "The form is not valid", f"It has more than {MAX_FIELDS} fields.") from None

    async def json(self, type: type[S]) -> S:
        """The JSON body as a struct."""
        self.check_json()
        try:
            return msgspec.json.decode(await self.body(), type=type)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Problem(400, "The body is not valid", str(error)) from None
        except RecursionError:
            raise Problem(400, "The body is not valid", "It is nested too deeply.") from None

    def check_json(self) -> None:
        """Refuse a body that does not say that it is JSON."""
        if self.request.headers.get("content-type", "").split(";")[0].strip().lower() != "application/json":
            raise Problem(415, "The body must be JSON", "Send the header Content-Type: application/json.")

    async def body(self) -> bytes:
        """The whole body, if it is not too long."""
        if self._body is None:
            content = bytearray()
            async for chunk in self.request.stream():
                content += chunk
                if len(content) > MAX_BODY:
                    raise Problem(413, "The body is too long", f"At most {MAX_BODY:,} bytes are accepted.")
            self._body = bytes(content)
        return self._body


def _url(root: str, path: str, query: dict[str, object]) -> str:
    given = {name: value for name, value in query.items() if value is not None}
    return quote(root, safe="/%~-._") + path + ("?" + urlencode(given) if given else "")


def _converted(pairs: Iterable[tuple[str, str]], type: type[S]) -> S:
    lists = _list_fields(type)
    values: dict[str, Any] = {}
    for name, value in pairs:
        if "\0" in value or "\0" in name:
            raise Problem(400, "A value is not valid", "It contains a NUL character.")
        if name in lists:
            values.setdefault(name, []).append(value)
        else:
            values[name] = value
    try:
        return msgspec.convert(values, type, strict=False)
    except msgspec.ValidationError as error:
        raise Problem(400, "A value is not valid", str(error)) from None


@cache
def _list_fields(type: type[msgspec.Struct]) -> frozenset[str]:
    """The fields that hold a list, under the names that they have in a query."""
    hints = typing.get_type_hints(type)
    lists = (list, tuple, set, frozenset)
    return frozenset(
        field.encode_name
        for field in msgspec.structs.fields(type)
        if any(
            (typing.get_origin(each) or each) in lists
            for each in (hints[field.name], *typing.get_args(hints[field.name]))
        )
    )
