"""The option `lane` of `@task`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import InvalidArgumentError

OPTIONS = ("lane",)


def lane_of(options: Mapping[str, Any]) -> str | None:
    """The lane that `@task(lane=…)` names; None for the main lane. Raises InvalidArgumentError."""
    lane = options.get("lane")
    if lane is not None and (not isinstance(lane, str) or not lane.strip()):
        raise InvalidArgumentError("lane", f"expected the name of a lane, got {lane!r}")
    return lane
