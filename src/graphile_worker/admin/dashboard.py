"""Dashboard: what handlers may ask of the whole application."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol, TypeVar

from starlette.requests import Request

from .database import Database
from .identity import Authorize
from .settings import AppSettings
from .signing import Signer

T = TypeVar("T")


class Dashboard(Protocol):
    """The application behind a call."""

    settings: AppSettings
    databases: list[Database]
    authorize: Authorize
    signer: Signer
    stopping: asyncio.Event
    """Set when the server stops: streams end then."""

    @property
    def environment(self) -> str:
        """The name of the environment, shown on every page."""

    @property
    def routes(self) -> Sequence[Any]:
        """The table: of `Route`, which knows calls and cannot be named here."""

    def prefix_of(self, database: Database) -> str:
        """The path below which a database is shown."""

    def static_url(self, name: str) -> str:
        """The path of a static file below the root."""

    def shared(self, key: Hashable, make: Callable[[], T]) -> T:
        """One object for all calls; its `aclose` is called at the end."""

    def still_knows(self, request: Request) -> bool:
        """Whether the session behind a request has not been signed out."""
