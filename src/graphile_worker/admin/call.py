"""Call: one request, as handlers see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, urlencode

import msgspec
from starlette.requests import Request

from .answers import Problem, not_allowed
from .database import Database
from .hub import Hub
from .identity import Identity
from .permissions import Permission

if TYPE_CHECKING:
    from .app import AdminApp

S = TypeVar("S", bound=msgspec.Struct)

MAX_BODY = 1024 * 1024
"""Bytes of a request body."""


@dataclass(slots=True)
class Call:
    """A request that was let in: who, about which database, with which values."""

    app: AdminApp
    request: Request
    identity: Identity
    database: Database
    nonce: str
    """For `<script nonce>` of this answer."""

    @property
    def path_values(self) -> dict[str, Any]:
        """What the path has in braces, already of the right type."""
        return dict(self.request.path_params)

    @property
    def hub(self) -> Hub:
        """Samples and live updates of the database."""
        return self.app.hubs.of(self.database)

    def require(self, permission: Permission) -> None:
        """Refuse unless the identity has the permission; for routes that list several."""
        if not self.identity.may(permission):
            raise not_allowed(permission)

    def may(self, permission: Permission) -> bool:
        return self.identity.may(permission)

    def url(self, path: str, **query: object) -> str:
        """The address of a path of the dashboard; what is None in the query is left out."""
        given = {name: value for name, value in query.items() if value is not None}
        root: str = self.request.scope.get("root_path", "")
        return root + path + ("?" + urlencode(given) if given else "")

    def query(self, type: type[S]) -> S:
        """The query string as a struct; wrong values are refused by name."""
        return _converted(dict(self.request.query_params), type)

    async def form(self, type: type[S]) -> S:
        """The fields of a form as a struct; empty fields count as not given."""
        body = (await self.body()).decode("utf-8", "replace")
        return _converted(dict(parse_qsl(body, max_num_fields=500)), type)

    async def json(self, type: type[S]) -> S:
        """The JSON body as a struct."""
        if self.request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
            raise Problem(415, "The body must be JSON", "Send the header Content-Type: application/json.")
        try:
            return msgspec.json.decode(await self.body(), type=type)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Problem(400, "The body is not valid", str(error)) from None

    async def body(self) -> bytes:
        """The whole body, if it is not too long."""
        content = bytearray()
        async for chunk in self.request.stream():
            content += chunk
            if len(content) > MAX_BODY:
                raise Problem(413, "The body is too long", f"At most {MAX_BODY:,} bytes are accepted.")
        return bytes(content)


def _converted(values: dict[str, str], type: type[S]) -> S:
    try:
        return msgspec.convert(values, type, strict=False)
    except msgspec.ValidationError as error:
        raise Problem(400, "A value is not valid", str(error)) from None
