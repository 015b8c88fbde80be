"""Changes limits at run time, with errors that say what is wrong."""

from __future__ import annotations

from ..db.connection import Connection
from ..errors import InvalidArgumentError
from ..limit import Rate, check_bounds, check_limit_name
from ..queries import limits
from ..queries.limits import LimitSummary
from ..schema_name import SchemaName
from ..text import closest


async def change_limit(
    connection: Connection,
    schema: SchemaName,
    name: str,
    *,
    concurrency: int | None,
    rate: Rate | None,
    burst: int | None,
) -> LimitSummary:
    """Set bounds of a limit by hand; the limit as it is then. Raises InvalidArgumentError."""
    check_limit_name(name)
    check_bounds(concurrency, rate, burst)
    if concurrency is None and rate is None and burst is None:
        raise InvalidArgumentError("limit", "nothing to set; give a concurrency, a rate or a burst")
    if burst is not None and rate is None and (await _find(connection, schema, name)).rate is None:
        raise InvalidArgumentError("burst", f"the limit {name!r} has no rate to exceed")
    await limits.set_limit(connection, schema, name, concurrency=concurrency, rate=rate, burst=burst)
    return await _find(connection, schema, name)


async def restore_limit(connection: Connection, schema: SchemaName, name: str) -> LimitSummary:
    """Remove what was set by hand; the limit as it is then. Raises InvalidArgumentError."""
    check_limit_name(name)
    await limits.reset_limit(connection, schema, name)
    return await _find(connection, schema, name)


async def _find(connection: Connection, schema: SchemaName, name: str) -> LimitSummary:
    known = {limit.name: limit for limit in await limits.list_limits(connection, schema)}
    if name in known:
        return known[name]
    near = closest(name, known)
    hint = f"did you mean {near!r}?" if near else "workers write their limits when they start"
    raise InvalidArgumentError("limit", f"there is no limit {name!r}; {hint}")
