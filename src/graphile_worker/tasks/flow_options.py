"""The options `executor`, `lane` and `limit` of `@task`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError, InvalidArgumentError
from ..limit import Limit, unique_limits

OPTIONS = ("executor", "lane", "limit")


def executor_of(options: Mapping[str, Any]) -> str | None:
    """The executor that `@task(executor=…)` names; None to run in the worker. Raises InvalidArgumentError."""
    name = options.get("executor")
    if name is not None and (not isinstance(name, str) or not name.strip()):
        raise InvalidArgumentError(
            "executor", f'expected the name of an executor, such as "process"; got {name!r}'
        )
    return name


def lane_of(options: Mapping[str, Any]) -> str | None:
    """The lane that `@task(lane=…)` names; None for the main lane. Raises InvalidArgumentError."""
    lane = options.get("lane")
    if lane is not None and (not isinstance(lane, str) or not lane.strip()):
        raise InvalidArgumentError("lane", f"expected the name of a lane, got {lane!r}")
    return lane


def limits_of(options: Mapping[str, Any]) -> tuple[Limit, ...]:
    """What `@task(limit=…)` gives, one limit or several, by name. Raises InvalidArgumentError."""
    given = options.get("limit")
    if given is None:
        return ()
    limits = (given,) if isinstance(given, Limit) else given
    if not isinstance(limits, list | tuple) or not all(isinstance(limit, Limit) for limit in limits):
        raise InvalidArgumentError("limit", f"expected a Limit or a list of them, got {given!r}")
    try:
        return tuple(unique_limits(limits))
    except ConfigError as error:
        raise InvalidArgumentError("limit", str(error)) from None
