"""Every option that a file or the environment can set, by name and type, derived from the option classes.

Nested options are written with dots: `local_queue.size`. Those of other groups have names of their own:
`recovery_grace` is `recovery.grace` in Python. A process that runs a worker has options of its own,
which may be set in the same file. `run` and other calls ignore them there, and refuse them as arguments.

`AdminOptions` are those of the command `graphile-worker admin`: the table [admin] of the configuration file.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, TypedDict

import msgspec

from ..errors import ConfigError
from ..values.option_groups import GROUPS, PLACES
from ..values.options import OPTION_NAMES, WorkerOptions

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

ADMIN = "admin."
SECRETS = frozenset({"databases", "metrics_token", "password", "proxy_secret", "secret", "tokens", "users"})
"""Options that are never shown."""

SIMPLE_KINDS = (bool, int, float, str, dict, list)


class Setting(msgspec.Struct, frozen=True):
    """One option: its dotted name, the type of its value, its class, and its place in that class."""

    name: str
    kind: type
    owner: type
    path: tuple[str, ...]
    default: Any = None
    """None if it is not set, or if its group is not."""

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return "GRAPHILE_WORKER_" + self.name.replace(".", "_").upper()

    @property
    def is_secret(self) -> bool:
        """Whether its value may hold a password, so that it is not shown."""
        return self.name == "connection_string" or self.name.removeprefix(ADMIN) in SECRETS


_NAMES: dict[tuple[str, ...], str] = {place: name for name, place in PLACES.items()}


@cache
def known_settings() -> dict[str, Setting]:
    """Every option by its dotted name, in declaration order."""
    found = [
        *_walk(WorkerOptions, WorkerOptions),
        *_walk(ProcessOptions, ProcessOptions),
        *_walk(AdminOptions, AdminOptions, ADMIN),
    ]
    return {setting.name: setting for setting in found}


@cache
def callable_names() -> frozenset[str]:
    """The names that a call may use: options and groups of options."""
    return frozenset(OPTION_NAMES + ProcessOptions.__struct_fields__)


def _walk(cls: type[Any], owner: type, prefix: str = "", path: tuple[str, ...] = ()) -> list[Setting]:
    found: list[Setting] = []
    hints = typing.get_type_hints(cls)
    for field in msgspec.structs.fields(cls):
        name, place = field.name, (*path, field.name)
        kind = _kind(hints[name])
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            found += _walk(kind, owner, "" if name in GROUPS else f"{prefix}{name}.", place)
        elif kind in SIMPLE_KINDS:  # a file cannot hold other types, such as functions
            default = None if field.default is msgspec.NODEFAULT else field.default
            found.append(Setting(prefix + _NAMES.get(place, name), kind, owner, place, default))
    return found


def _kind(annotation: Any) -> Any:
    """The type of a value other than None."""
    if isinstance(annotation, types.UnionType):
        others = [part for part in annotation.__args__ if part is not types.NoneType]
        return _kind(others[0]) if len(others) == 1 else annotation
    return typing.get_origin(annotation) or annotation  # `dict` of `dict[str, str]`


AUTH_KINDS = ("password", "token", "header", "none")
ROLES = ("viewer", "operator", "admin")


class AdminOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the dashboard, for `graphile-worker admin` and `graphile-worker dev`."""

    listen: str = "127.0.0.1:5678"
    """Address and port of the dashboard. Other machines reach it only if there are credentials."""
    auth: str | None = None
    """How people sign in: `password`, `token` (a one-time link), `header` or `none`."""
    users: dict[str, str] = msgspec.field(default_factory=dict)
    """Users: `ada = "operator:scrypt$…"`, as `graphile-worker admin hash` prints it."""
    tokens: dict[str, str] = msgspec.field(default_factory=dict)
    """API tokens: `ci = "viewer:sha256$…"`, as `graphile-worker admin token` prints it."""
    password: str | None = None
    """The password of the user `admin`, for the simple case; better in the environment than in a file."""
    secret: str | None = None
    """Signs sessions, so that they survive a restart; better in the environment than in a file."""
    auth_header: str | None = None
    """The header in which a trusted proxy names the user, such as `X-Forwarded-User`."""
    auth_role: str = "viewer"
    """The role of people whom the header names and `users` does not."""
    trusted_proxies: list[str] = msgspec.field(default_factory=list)
    """Addresses or networks of proxies whose forwarded headers are trusted, such as `10.0.0.0/8`."""
    proxy_secret: str | None = None
    """A secret that the proxy sends as `X-Proxy-Secret`, where its address is not known."""
    allowed_hosts: list[str] = msgspec.field(default_factory=list)
    """Host names of the dashboard. The names of loopback are known."""
    root_path: str = ""
    """The path under which a proxy that strips it serves the dashboard, such as `/jobs`."""
    read_only: bool = False
    """Show everything, change nothing; PostgreSQL enforces it."""
    environment: str | None = None
    """The name of the environment, shown on every page: `production` in red."""
    databases: dict[str, str] = msgspec.field(default_factory=dict)
    """Several databases, by name. A parameter `schema` in the URL names the schema."""
    redact: list[str] = msgspec.field(default_factory=list)
    """Paths in payloads whose values are hidden, such as `card.number`, in addition to the usual names."""
    job_links: dict[str, str] = msgspec.field(default_factory=dict)
    """Links on the page of a job: `Logs = "https://logs.example/?q={job_id}"`."""
    back_link: str | None = None
    """An address that the dashboard links to as the way back."""
    frame_ancestors: list[str] = msgspec.field(default_factory=list)
    """Origins that may show the dashboard in a frame."""
    metrics_token: str | None = None
    """A bearer token that may read `/metrics` and nothing else."""
    metrics_queues: list[str] = msgspec.field(default_factory=list)
    """Names of queues with a value of their own in `/metrics`. By default all, if there are at most 50."""

    def __post_init__(self) -> None:
        split_address(self.listen)
        if self.auth is not None and self.auth not in AUTH_KINDS:
            raise ConfigError(f"admin.auth: expected {' or '.join(AUTH_KINDS)}, got {self.auth!r}")
        if self.auth_role not in ROLES:
            raise ConfigError(f"admin.auth_role: expected {' or '.join(ROLES)}, got {self.auth_role!r}")
        if self.root_path and (not self.root_path.startswith("/") or self.root_path.endswith("/")):
            raise ConfigError(f"admin.root_path: expected a path such as /jobs, got {self.root_path!r}")
        for name in ("trusted_proxies", "allowed_hosts", "redact", "frame_ancestors", "metrics_queues"):
            if not all(isinstance(each, str) and each for each in getattr(self, name)):
                raise ConfigError(f"admin.{name}: expected a list of strings")
        for name in ("users", "tokens", "databases", "job_links"):
            if not all(isinstance(each, str) for each in getattr(self, name).values()):
                raise ConfigError(f"admin.{name}: expected text for each name")


def split_address(text: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`, `:PORT` or `PORT`; port 0 picks a free one."""
    host, colon, port = text.rpartition(":")
    if not colon and not port.isdecimal():
        host, port = text, "5678"
    host = host.removeprefix("[").removesuffix("]")
    if not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"admin.listen: expected HOST:PORT such as 127.0.0.1:5678, got {text!r}")
    return host or "127.0.0.1", int(port)
