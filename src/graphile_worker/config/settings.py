"""Every option that can be set from outside, by name and kind, read off the option classes themselves.

Options inside other options are written with dots: `local_queue.size`. The command line has a few options
of its own, which a file or the environment may set too. There a library call ignores them, because the file
serves both; among its own arguments it refuses them.
"""

from __future__ import annotations

import types
import typing
from functools import cache
from typing import Any

import msgspec

from ..errors import ConfigError
from ..options import WorkerOptions

LOG_FORMATS = ("text", "json")
LOG_LEVELS = ("error", "warning", "info", "debug")
MAX_PROCESSES = 1024
SIMPLE_KINDS = (bool, int, float, str)


class CommandLineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options that only the command `graphile-worker` knows."""

    log_format: str = "text"
    """`text` for people, `json` for machines: one object per line with stable keys."""
    log_level: str = "info"
    """The least important level that is shown."""
    processes: int = 1
    """Worker processes; each runs `concurrency` jobs at a time on connections of its own."""

    health_file: str | None = None
    """Where each worker process notes that it lives, with its process id appended; `health` reads it."""

    def __post_init__(self) -> None:
        for name, allowed in (("log_format", LOG_FORMATS), ("log_level", LOG_LEVELS)):
            if getattr(self, name) not in allowed:
                raise ConfigError(f"{name}: expected {' or '.join(allowed)}, got {getattr(self, name)!r}")
        if not 1 <= self.processes <= MAX_PROCESSES:
            raise ConfigError(f"processes: expected a number from 1 to {MAX_PROCESSES}, got {self.processes}")


class Setting(msgspec.Struct, frozen=True):
    """One option: its dotted name, the type of its value, and the class that holds it."""

    name: str
    kind: type
    owner: type

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return "GRAPHILE_WORKER_" + self.name.replace(".", "_").upper()


@cache
def known_settings() -> dict[str, Setting]:
    """Every option by its dotted name, in the order in which the classes declare them."""
    found = [*_walk(WorkerOptions, WorkerOptions, ""), *_walk(CommandLineOptions, CommandLineOptions, "")]
    return {setting.name: setting for setting in found}


@cache
def callable_names() -> frozenset[str]:
    """Every name that a call may use: the options, and the groups they are in."""
    return frozenset(WorkerOptions.__struct_fields__ + CommandLineOptions.__struct_fields__)


def _walk(cls: type, owner: type, prefix: str) -> list[Setting]:
    found: list[Setting] = []
    for name, annotation in typing.get_type_hints(cls).items():
        kind = _kind(annotation)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            found += _walk(kind, owner, f"{prefix}{name}.")
        elif kind in SIMPLE_KINDS:  # what only code can give, such as a function, is left to calls
            found.append(Setting(prefix + name, kind, owner))
    return found


def _kind(annotation: Any) -> Any:
    """The type a value must have, with `None` left aside."""
    if isinstance(annotation, types.UnionType):
        others = [part for part in annotation.__args__ if part is not types.NoneType]
        return others[0] if len(others) == 1 else annotation
    return annotation
