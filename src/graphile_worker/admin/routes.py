"""Route: one row of the table from which requests are served and the OpenAPI document is made.

A subject has its routes in `pages/SUBJECT.py` and `api/SUBJECT.py`, each in a list `ROUTES`; `table.py` has
them all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import ConfigError
from .call import Call
from .permissions import PERMISSIONS, Access, Permission

Handler = Callable[[Call], Awaitable[Any]]
"""Returns a `Page`, `Redirect` or `Download`, a Starlette response, or a struct that is sent as JSON."""
Method = Literal["GET", "POST", "PATCH", "DELETE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """`permission` is needed to call it; of several, one is needed and the handler requires the right one.

    A route that lacks one is refused when the module is imported. `signed_in` stands for any identity, and
    `open` for no sign-in at all.
    """

    method: Method
    path: str
    handler: Handler
    permission: Permission | tuple[Permission, ...] | Access
    summary: str
    """One line for the API documentation."""
    query: type[Any] | None = None
    """The struct that the handler makes of the query string."""
    body: type[Any] | None = None
    """The struct that the handler makes of the body."""
    answer: Any = None
    """The type of the JSON answer; None for pages."""
    media_type: str = "application/json"
    """Of the answer of an API route, if it is not JSON."""
    status: int = 200
    json_of: str | None = None
    """Of a page: the API path with the same content, for `PATH.json` and `Accept: application/json`."""

    streams: bool = False
    """The answer does not end by itself, so there is no HEAD."""
    changes_nothing: bool = False
    """Of a POST: it only asks the database, or does not touch it, so a read-only dashboard has it too."""

    def __post_init__(self) -> None:
        known = PERMISSIONS.issuperset(self.permissions)
        if not known or not (self.permissions or self.access):
            raise ConfigError(f"{self.method} {self.path}: a route needs a known permission")

    @property
    def is_write(self) -> bool:
        """Whether it may change something; such routes do not exist in a read-only dashboard."""
        return self.method != "GET" and not self.changes_nothing

    @property
    def is_api(self) -> bool:
        return self.path.startswith("/api/")

    @property
    def access(self) -> Access | None:
        """`open` or `signed_in`, for a route that needs no permission."""
        return self.permission if self.permission == "open" or self.permission == "signed_in" else None

    @property
    def permissions(self) -> tuple[Permission, ...]:
        if self.permission == "open" or self.permission == "signed_in":
            return ()
        return (self.permission,) if isinstance(self.permission, str) else self.permission


API = "/api/v1"
