"""Route: one row of the table from which requests are served and the OpenAPI document is made.

A subject has its routes in `pages/SUBJECT.py` and `api/SUBJECT.py`, each in a list `ROUTES`; `table.py` has
them all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from .call import Call
from .permissions import Permission

Handler = Callable[[Call], Awaitable[Any]]
"""Returns a `Page`, `Redirect` or `Download`, a Starlette response, or a struct that is sent as JSON."""
Method = Literal["GET", "POST", "PATCH", "DELETE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """`permission` is needed to call it; of several, one is needed and the handler requires the right one."""

    method: Method
    path: str
    handler: Handler
    permission: Permission | tuple[Permission, ...]
    summary: str
    """One line for the API documentation."""
    query: type[Any] | None = None
    """The struct that the handler makes of the query string."""
    body: type[Any] | None = None
    """The struct that the handler makes of the body."""
    answer: Any = None
    """The type of the JSON answer; None for pages."""
    status: int = 200
    json_of: str | None = None
    """Of a page: the API path with the same content, for `PATH.json` and `Accept: application/json`."""

    @property
    def is_write(self) -> bool:
        """Whether it may change something; such routes do not exist in a read-only dashboard."""
        return self.method != "GET"

    @property
    def is_api(self) -> bool:
        return self.path.startswith("/api/")

    @property
    def permissions(self) -> tuple[Permission, ...]:
        return (self.permission,) if isinstance(self.permission, str) else self.permission


API = "/api/v1"
