"""Every option that a file or the environment can set, by name and type, derived from the option classes.

Nested options are written with dots: `local_queue.size`. A process that runs a worker has options of its own,
which may be set in the same file. `run` and other calls ignore them there, and refuse them as arguments.
"""

from __future__ import annotations

import types
import typing
from functools import cache
from typing import Any

import msgspec

from ..values.options import WorkerOptions
from .admin_options import PREFIX as ADMIN
from .admin_options import SECRETS, AdminOptions
from .process_options import ProcessOptions

SIMPLE_KINDS = (bool, int, float, str, dict, list)


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
        *_walk(ProcessOptions, ProcessOptions, ""),
        *_walk(AdminOptions, AdminOptions, ADMIN),
    ]
    return {setting.name: setting for setting in found}


@cache
def callable_names() -> frozenset[str]:
    """The names that a call may use: options and groups of options."""
    return frozenset(WorkerOptions.__struct_fields__ + ProcessOptions.__struct_fields__)


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
