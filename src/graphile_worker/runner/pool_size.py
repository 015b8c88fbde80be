"""How the connections that `max_pool_size` allows are divided."""

from __future__ import annotations

from ..errors import ConfigError
from ..options import SMALLEST_POOL, SMALLEST_POOL_FOR_RECOVERY, WorkerOptions


def pool_size(options: WorkerOptions) -> int:
    """The size of a worker's pool; heartbeats have a connection of their own beside it.

    With two or three connections there are no heartbeats, and with two the worker polls and does not listen;
    `recovery.service` and `worker.pool` log that.
    """
    most = options.max_pool_size
    if most < SMALLEST_POOL:
        raise ConfigError(
            f"max_pool_size: a worker needs at least {SMALLEST_POOL} database connections, one for itself "
            f"and one for its tasks; got {most}"
        )
    return most - 1 if options.recovery and most >= SMALLEST_POOL_FOR_RECOVERY else most
