"""The arguments of `make_worker_utils` as type checkers and editors see them.

No module imports this one at run time; the reference pages are made from it.
"""

from __future__ import annotations

from collections.abc import Iterable

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
    plugins: Iterable[Plugin]
    """Objects with `install(hooks)`, called when the client is opened; they serve this client only."""
    clock: Clock | None
    """The source of time; for tests."""
    options: WorkerOptions | None
    """A `WorkerOptions` object to start from, in place of the environment and the configuration file."""
