"""The arguments of `make_worker_utils` and `make_sync_worker_utils` as type checkers and editors see them.

No module imports this one at run time; the reference pages are made from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from ..clock import Clock
from ..db.connection import AnyPool
from ..hooks import Events, Hooks, Plugin
from ..option_values import ClientOptionValues
from ..options import WorkerOptions


class ClientArguments(ClientOptionValues, total=False):
    """The arguments of `make_worker_utils`."""

    pg_pool: AnyPool | None
    """Your own asyncpg pool in place of `connection_string`; it stays open."""
    events: Events | None
    """The `Events` object to report to."""
    hooks: Hooks | None
    """A `Hooks` object: events and interceptors together, in place of `events`."""
    plugins: Iterable[Plugin | str]
    """Objects with `install(hooks)`, called when the client is opened; they serve this client only.

    Names of plugins may be among them. Those of the configuration are used too.
    """
    clock: Clock | None
    """The source of time; for tests."""
    options: WorkerOptions | None
    """A `WorkerOptions` object to start from, in place of the environment and the configuration file."""


class SyncClientArguments(ClientOptionValues, total=False):
    """The arguments of `make_sync_worker_utils`."""

    events: Events | None
    """The `Events` object to report to."""
    hooks: Hooks | None
    """A `Hooks` object: events and interceptors together, in place of `events`."""
    plugins: Iterable[Plugin | str]
    """Objects with `install(hooks)`; they serve this client only.

    Names of plugins may be among them. Those of the configuration are used too.
    """
    options: WorkerOptions | None
    """A `WorkerOptions` object to start from, in place of the environment and the configuration file."""
    call_timeout: float | timedelta | None
    """Seconds that a call waits for the server, 30 by default; None: without limit.

    Calls that can take long by nature, such as `migrate` or a change in steps, have no limit.
    """
