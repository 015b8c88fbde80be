"""Every option that a file or the environment can set, by name and type, derived from the option classes.

Nested options are written with dots: `local_queue.size`. The command line has a few options of its own,
which may be set in the same file. Library calls ignore them there, and refuse them as arguments.
"""

from __future__ import annotations

import types
import typing
from functools import cache
from typing import Any

import msgspec

from ..errors import ConfigError
from ..values.options import WorkerOptions
from .admin_options import PREFIX as ADMIN
from .admin_options import SECRETS, AdminOptions

LOG_FORMATS = ("text", "json")
LOG_LEVELS = ("error", "warning", "info", "debug")
MAX_PROCESSES = 1024
ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - probes and Prometheus come from outside of the container
SIMPLE_KINDS = (bool, int, float, str, dict, list)


class CommandLineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a process; the command `graphile-worker` and `serve` take them, `run` does not."""

    log_format: str = "text"
    """`text` for people, `json` for machines: one object per line with stable keys."""
    log_level: str = "info"
    """The lowest level to log."""
    log_levels: dict[str, str] = msgspec.field(default_factory=dict)
    """Levels of single loggers and those below them, such as `httpx = "warning"`."""
    processes: int = 1
    """Number of worker processes. Each runs `concurrency` jobs at a time on its own connections."""

    health_file: str | None = None
    """Each worker process writes its heartbeat to this path plus its process id; `health` reads it."""
    http_port: int | None = None
    """Serve `/livez`, `/readyz` and `/metrics` on this port; 0 is any free one. None serves nothing."""
    http_address: str = ANY_ADDRESS
    """The address to serve them on. The default is every address, for probes from outside of a container."""
    database_metrics: bool = False
    """Serve gauges about the database among the metrics, too. Of several workers, one does."""
    app: str | None = None
    """The application, as `module:attribute`: an `App`, or a function that returns its lifespan."""

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


class Setting(msgspec.Struct, frozen=True):
    """One option: its dotted name, the type of its value, and its class."""

    name: str
    kind: type
    owner: type

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return "GRAPHILE_WORKER_" + self.name.replace(".", "_").upper()

    @property
    def is_secret(self) -> bool:
        """Whether its value may hold a password, so that it is not shown."""
        return self.name == "connection_string" or self.name.removeprefix(ADMIN) in SECRETS


@cache
def known_settings() -> dict[str, Setting]:
    """Every option by its dotted name, in declaration order."""
    found = [
        *_walk(WorkerOptions, WorkerOptions, ""),
        *_walk(CommandLineOptions, CommandLineOptions, ""),
        *_walk(AdminOptions, AdminOptions, ADMIN),
    ]
    return {setting.name: setting for setting in found}


@cache
def callable_names() -> frozenset[str]:
    """The names that a call may use: options and groups of options."""
    return frozenset(WorkerOptions.__struct_fields__ + CommandLineOptions.__struct_fields__)


def _walk(cls: type, owner: type, prefix: str) -> list[Setting]:
    found: list[Setting] = []
    for name, annotation in typing.get_type_hints(cls).items():
        kind = _kind(annotation)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            found += _walk(kind, owner, f"{prefix}{name}.")
        elif kind in SIMPLE_KINDS:  # a file cannot hold other types, such as functions
            found.append(Setting(prefix + name, kind, owner))
    return found


def _kind(annotation: Any) -> Any:
    """The type of a value other than None."""
    if isinstance(annotation, types.UnionType):
        others = [part for part in annotation.__args__ if part is not types.NoneType]
        return others[0] if len(others) == 1 else annotation
    return typing.get_origin(annotation) or annotation  # `dict` of `dict[str, str]`
