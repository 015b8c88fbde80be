"""Divides the connections that `max_pool_size` allows between the pool and the heartbeat."""

from __future__ import annotations

from ..errors import ConfigError
from ..options import SMALLEST_POOL, SMALLEST_POOL_FOR_RECOVERY, WorkerOptions


def pool_size(options: WorkerOptions) -> int:
    """The size of a worker's connection pool; the heartbeat has its own connection.

    With two or three connections there is no heartbeat, and with two the worker polls instead of listening;
    `recovery.service` and `worker.pool` log that.
    """
    most = options.max_pool_size
    if most < SMALLEST_POOL:
        raise ConfigError(
            f"max_pool_size: a worker needs at least {SMALLEST_POOL} database connections, one for itself "
            f"and one for its tasks; got {most}"
        )
    return most - 1 if options.recovery and most >= SMALLEST_POOL_FOR_RECOVERY else most
