"""Call: one request, as handlers see it. A body is a form on a page, and JSON below `/api/`."""

from __future__ import annotations

import typing
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, tzinfo
from functools import cache
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlencode

import msgspec
from starlette.requests import Request

from ..answers import Notice, Problem, not_allowed
from ..database import Database
from ..live.hub import Hub, hubs_of
from ..security.identity import Identity, Permission
from ..security.redact import Redactor
from ..settings import Dashboard
from .show import ZONE_COOKIE, typed_time, zone_named

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
    is_api: bool = False
    """The answer is JSON, and so is the body."""
    _content: bytes | None = None

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
    def zone(self) -> tzinfo:
        """The viewer's time zone, as the browser told it."""
        return zone_named(unquote(self.request.cookies.get(ZONE_COOKIE, "")))

    @property
    def hub(self) -> Hub:
        """Samples and live updates of the database."""
        return hubs_of(self.app).of(self.database)

    @property
    def redactor(self) -> Redactor:
        """Hides secrets in what people and programs get to see."""
        return self.app.shared("redactor", lambda: self.app.settings.redactor)

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
        pairs = [pair for pair in self.request.query_params.multi_items() if pair[1]]
        return _converted(pairs, type, self.zone)

    async def body(self, type: type[S]) -> S:
        """The body as a struct: JSON in the API, a form elsewhere.

        Empty fields of a form count as not given, a list takes all fields of its name, and times without a
        zone are in the viewer's.
        """
        return await self.json(type) if self.is_api else await self.form(type)

    async def is_confirmed(self) -> bool:
        """Whether the question of a page was answered; the API asks none."""
        return self.is_api or any(name == "confirmed" and value for name, value in await self._fields())

    async def form(self, type: type[S]) -> S:
        """The fields of a form as a struct."""
        return _converted(await self._fields(), type, self.zone)

    async def _fields(self) -> list[tuple[str, str]]:
        content = (await self.content()).decode("utf-8", "replace")
        try:
            return parse_qsl(content, max_num_fields=MAX_FIELDS)
        except ValueError:
            raise Problem(400, "The form is not valid", f"It has more than {MAX_FIELDS} fields.") from None

    async def json(self, type: type[S]) -> S:
        """The JSON body as a struct."""
        self.check_json()
        try:
            return msgspec.json.decode(await self.content(), type=type)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Problem(400, "The body is not valid", str(error)) from None
        except RecursionError:
            raise Problem(400, "The body is not valid", "It is nested too deeply.") from None

    def check_json(self) -> None:
        """Refuse a body that does not say that it is JSON."""
        if self.request.headers.get("content-type", "").split(";")[0].strip().lower() != "application/json":
            raise Problem(415, "The body must be JSON", "Send the header Content-Type: application/json.")

    async def content(self) -> bytes:
        """The whole body, if it is not too long."""
        if self._content is None:
            content = bytearray()
            async for chunk in self.request.stream():
                content += chunk
                if len(content) > MAX_BODY:
                    raise Problem(413, "The body is too long", f"At most {MAX_BODY:,} bytes are accepted.")
            self._content = bytes(content)
        return self._content


def _url(root: str, path: str, query: dict[str, object]) -> str:
    given = {name: value for name, value in query.items() if value is not None}
    return quote(root, safe="/%~-._") + path + ("?" + urlencode(given) if given else "")


def _converted(pairs: Iterable[tuple[str, str]], type: type[S], zone: tzinfo) -> S:
    lists, times, ticks = (_fields_with(type, kinds) for kinds in (_LISTS, (datetime,), (bool,)))
    values: dict[str, Any] = {}
    for name, value in pairs:
        if "\0" in value or "\0" in name:
            raise Problem(400, "A value is not valid", "It contains a NUL character.")
        if name in times:
            values[name] = typed_time(value, zone)
        elif name in ticks and value in ("yes", "on"):
            values[name] = True
        elif name in lists:
            values.setdefault(name, []).append(value)
        else:
            values[name] = value
    try:
        return msgspec.convert(values, type, strict=False)
    except msgspec.ValidationError as error:
        raise Problem(400, "A value is not valid", str(error)) from None


_LISTS = (list, tuple, set, frozenset)


@cache
def _fields_with(type: type[msgspec.Struct], kinds: tuple[Any, ...]) -> frozenset[str]:
    """The fields that hold one of these types, under the names that they have in a query."""
    hints = typing.get_type_hints(type)
    return frozenset(
        field.encode_name
        for field in msgspec.structs.fields(type)
        if any(
            (typing.get_origin(each) or each) in kinds
            for each in (hints[field.name], *typing.get_args(hints[field.name]))
        )
    )


# -- the way back -------------------------------------------------------------------------------------------


def return_url(call: Call, text: str, otherwise: str) -> str:
    """The path below the dashboard's root that a form names as `back`; `otherwise` for anything else.

    It may begin with the root, as addresses in pages do. Nothing leads to another site.
    """
    root = call.url("")
    if root and text.startswith(root + "/"):
        text = text[len(root) :]
    if not text.startswith("/") or text.startswith("//") or "\\" in text or not text.isprintable():
        return otherwise
    return text
