"""ProcessOptions: the options of a process that runs a worker, declared once.

The configuration file, the environment, the arguments of `serve` and what calls say about an option that they
do not take derive from here. A flag of the command line is declared under the same name in
`cli/support/parameters.py`; Django's command has it, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

import msgspec

from ..errors import ConfigError

LOG_FORMATS = ("text", "json")
LOG_LEVELS = ("error", "warning", "info", "debug")
MAX_PROCESSES = 1024
ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - probes and Prometheus come from outside of the container


class ProcessOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a process; the command `graphile-worker` and `serve` take them, `run` does not."""

    log_format: str = "text"
    """`text` for people, `json` for machines: one object per line with stable keys."""
    log_level: str = "info"
    """The lowest level to log."""
    log_levels: dict[str, str] = msgspec.field(default_factory=dict)
    """Levels of [single loggers](../logging.md#levels) and those below them: `httpx = "warning"`."""
    processes: int = 1
    """Number of worker processes. Each runs `concurrency` jobs at a time on its own connections."""
    http_port: int | None = None
    """Serve [`/livez`, `/readyz` and `/metrics`](../observability/kubernetes.md) on this port; 0 is any."""
    http_address: str = ANY_ADDRESS
    """The address to serve them on. The default is every address, for probes from outside of a container."""
    database_metrics: bool = False
    """Serve [gauges about the database](../observability/prometheus.md#gauges-about-the-database), too.

    Of several workers, one does.
    """
    app: str | None = None
    """The [application](../application.md), as `module:attribute`: an `App` or a lifespan."""

    def __post_init__(self) -> None:
        for name, allowed in (("log_format", LOG_FORMATS), ("log_level", LOG_LEVELS)):
            if getattr(self, name) not in allowed:
                raise ConfigError(f"{name}: expected {' or '.join(allowed)}, got {getattr(self, name)!r}")
        for name, level in self.log_levels.items():
            if level not in LOG_LEVELS:
                raise ConfigError(f"log_levels: {name}: expected {' or '.join(LOG_LEVELS)}, got {level!r}")
        if not 1 <= self.processes <= MAX_PROCESSES:
            raise ConfigError(f"processes: expected a number from 1 to {MAX_PROCESSES}, got {self.processes}")
        if self.http_port is not None and not 0 <= self.http_port <= 65535:
            raise ConfigError(f"http_port: expected a number from 0 to 65535, got {self.http_port}")


class ProcessOptionValues(TypedDict, total=False):
    """The same as arguments of a call, for type checkers; the app is an argument of its own."""

    log_format: str | None
    log_level: str | None
    log_levels: Mapping[str, str] | None
    processes: int | None
    http_port: int | None
    http_address: str | None
    database_metrics: bool | None


SERVE_OPTIONS = tuple(name for name in ProcessOptions.__struct_fields__ if name != "app")
"""The options that `serve` takes as arguments."""
