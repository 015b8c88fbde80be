"""The options of a client that is bound to a connection.

Such a client is often made for each request, and reading the configuration takes milliseconds. So what was
read is kept for as long as the folder and the variables are the same.
"""

from __future__ import annotations

import os
from functools import lru_cache

from ..options import WorkerOptions

_VARIABLES = ("GRAPHILE_WORKER_SCHEMA", "GRAPHILE_WORKER_USE_LOCAL_TIME")


def bound_options(
    schema: str | None, use_local_time: bool | None, options: WorkerOptions | None
) -> WorkerOptions:
    """These values over `options`, or else over the environment and the configuration file."""
    if options is not None:
        return _combined(options, schema, use_local_time)
    variables = tuple(map(os.environ.get, _VARIABLES))
    return _configured(schema, use_local_time, os.getcwd(), variables)


@lru_cache(maxsize=16)
def _configured(
    schema: str | None, use_local_time: bool | None, _folder: str, _variables: tuple[str | None, ...]
) -> WorkerOptions:
    return _combined(None, schema, use_local_time)


def _combined(
    options: WorkerOptions | None, schema: str | None, use_local_time: bool | None
) -> WorkerOptions:
    from ..config.resolve import combine

    return combine(options, {"schema": schema, "use_local_time": use_local_time})
