"""AppSettings: everything about a dashboard that is not a database and not a sign-in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from .database import Database
from .security.identity import Authorize
from .security.redact import FormatPayload, Redactor
from .security.sessions import Signer


@dataclass(frozen=True, slots=True, kw_only=True)
class AppSettings:
    """What `admin_app` was asked for. Handlers find it in `call.app.settings`."""

    environment: str = ""
    """The name of the environment, shown on every page: `production` in red."""
    redact: Sequence[str] = ()
    """Paths in payloads whose values are hidden, such as `card.number`, in addition to the usual names."""
    format_payload: FormatPayload | None = None
    """Replaces a payload before it is shown."""
    job_links: Mapping[str, str] = field(default_factory=dict)
    """Links on the page of a job, by label; `{job_id}`, `{task}`, `{queue}` and `{key}` are replaced."""
    back_link: str = ""
    """The address of the application that mounts the dashboard; the layout links it."""
    allowed_hosts: Sequence[str] | None = None
    """Names that the Host header may have. None accepts every name: the mounting application decides."""
    frame_ancestors: Sequence[str] = ()
    """Origins that may show the dashboard in a frame. By default no page may."""
    secret: str = ""
    """Signs cookies. A random one is made if it is empty, and then sessions end with the process."""
    metrics_token: str = ""
    """A bearer token that may read `/metrics` and nothing else."""
    metrics_queues: tuple[str, ...] = ()
    """Names of queues with a value of their own in `/metrics`; if empty, all queues if they are few."""

    @property
    def redactor(self) -> Redactor:
        """Hides secrets in what people and programs get to see."""
        return Redactor(self.redact, self.format_payload)


# -- the application ----------------------------------------------------------------------------------------

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

    def offers(self, database: Database, path: str) -> bool:
        """Whether a form or page can work: the database has the tables that it needs."""

    def static_url(self, name: str) -> str:
        """The path of a static file below the root."""

    def shared(self, key: Hashable, make: Callable[[], T]) -> T:
        """One object for all calls; its `aclose` is called at the end."""

    async def still_knows(self, call: Any) -> bool:
        """Whether the person behind a `Call` that lasts would still be let in."""
