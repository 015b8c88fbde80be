"""DriverSetup: what the driver must know before its first call."""

from __future__ import annotations

from typing import Any

import msgspec


class DriverSetup(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first message to the driver."""

    parent: int
    """The process id of the worker."""
    path: list[str]
    """`sys.path`."""
    levels: dict[str, int]
    """Levels of loggers by name."""
    address: str
    options: dict[str, Any]
    """Options of remote functions, such as `num_cpus`."""
    runtime_env: dict[str, Any] | None = None
