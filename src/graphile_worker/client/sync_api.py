"""Opens a blocking client."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Unpack

from ..config.calls import call_hooks, call_options
from ..database.connections.connection import Pool
from ..database.connections.dsn import Dsn
from ..database.connections.open import resolve_connection
from ..errors import ConnectionConfigError, InvalidArgumentError
from ..values.options import CLIENT_OPTIONS, WorkerOptions
from .api import make_worker_utils, with_plugins
from .background import Background
from .sync_worker_utils import SyncWorkerUtils

if TYPE_CHECKING:
    from .api import SyncClientArguments

OBJECTS = ("events", "hooks", "plugins", "options", "call_timeout")
"""Arguments of `make_sync_worker_utils` that are not options; `arguments.py` has their types."""
CALL_TIMEOUT = 30.0  # seconds


def make_sync_worker_utils(**arguments: Unpack[SyncClientArguments]) -> SyncWorkerUtils:
    """A client for blocking code: `with make_sync_worker_utils(…) as utils`, or call `release` at the end.

    It may be a global variable that all threads share: the first call connects, and a forked process
    connects by itself. The database is `connection_string`, else DATABASE_URL, else what the PG* variables
    say. What is not given comes from `options` if there is such an object, else from the environment and
    the configuration file. The schema is not installed unasked: call `utils.migrate()`, or run
    `graphile-worker migrate`.

    A call fails with ConnectionFailedError if the server has not answered after `call_timeout` seconds, 30 by
    default; None is no limit. What can take long by nature, such as `migrate`, `add_jobs`, `wait_for` and
    changes in steps, has none.
    """
    chosen = call_options(arguments, objects=OBJECTS, options=CLIENT_OPTIONS)
    hooks = with_plugins(call_hooks(arguments), arguments.get("plugins", ()), chosen, _database(chosen))
    timeout = _seconds(arguments.get("call_timeout", CALL_TIMEOUT))
    without = chosen.with_values(plugins=[])  # they are in the hooks
    background = Background(lambda: make_worker_utils(options=without, hooks=hooks), timeout)
    return SyncWorkerUtils(chosen, hooks, home=background)


def _database(options: WorkerOptions) -> Pool | Dsn | None:
    """The database as far as it is known now; if it is not, the first call says so."""
    try:
        return resolve_connection(options.connection_string)
    except ConnectionConfigError:
        return None


def _seconds(timeout: Any) -> float | None:
    if timeout is None:
        return None
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds <= 0:
        raise InvalidArgumentError(
            "call_timeout", f"expected seconds, a timedelta, or None for no limit; got {timeout!r}"
        )
    return float(seconds)
