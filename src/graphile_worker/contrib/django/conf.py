"""The setting GRAPHILE_WORKER, and a connection string from Django's databases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from ...config import Host, Settings, resolve_settings
from ...config.sources import Source, from_settings
from ...errors import ConfigError
from ...values.options import OPTION_NAMES, WorkerOptions
from ...values.schema_name import DEFAULT_SCHEMA, SchemaName
from ...values.text import closest

if TYPE_CHECKING:
    from ...cron import CronItem

SETTING = "GRAPHILE_WORKER"
OF_DJANGO = frozenset(
    {"pool", "isolation_level", "server_side_binding", "cursor_factory", "prepare_threshold", "context"}
)
"""Options of a database that mean something to Django only."""
OF_LIBPQ = frozenset(
    {
        "application_name", "channel_binding", "client_encoding", "connect_timeout", "gssencmode", "hostaddr",
        "keepalives", "keepalives_count", "keepalives_idle", "keepalives_interval", "krbsrvname",
        "load_balance_hosts", "options", "passfile", "require_auth", "service", "sslcert", "sslcrl", "sslkey",
        "sslmode", "sslpassword", "sslrootcert", "ssl_min_protocol_version", "ssl_max_protocol_version",
        "target_session_attrs", "tcp_user_timeout",
    }
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class DjangoSettings:
    """What the setting GRAPHILE_WORKER says; keys are the names in upper case."""

    database: str = "default"
    """The alias of the database that has the jobs."""
    schema: str = DEFAULT_SCHEMA
    connection_string: str | None = None
    """For workers, in place of the alias: to bypass a pooler, for example."""
    task_modules: Sequence[str] = ("tasks",)
    """Modules of installed applications that the worker imports."""
    tasks: Sequence[str] = ()
    """Further modules with tasks."""
    crontab: str | None = None
    """Recurring jobs, as the text of a crontab."""
    cron_items: str | Sequence[CronItem | Mapping[str, Any]] = ()
    """Recurring jobs: a list of CronItem or of dictionaries, or the dotted path of such a list."""
    plugins: Sequence[str] = ()
    """Plugins by their dotted paths, or by names such as `sentry`."""
    client_plugins: Sequence[str] = ()
    """Plugins of the site itself, which watch the jobs that it adds; named in the same way."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of workers and of their processes by name, such as {"concurrency": 10, "processes": 2}."""

    @cached_property
    def worker_options(self) -> WorkerOptions:
        """The options as the settings alone have them, for the site itself and for tests."""
        given = {name: value for name, value in self._options().items() if name in WORKER_OPTIONS}
        return WorkerOptions.from_mapping({**given, "schema": self.schema})

    def source(self) -> Source:
        """The options for a worker or a command, each with its place in the settings."""
        found = from_settings(self._options(), place("OPTIONS"))
        if self.plugins:
            found.places["plugins"] = place("PLUGINS")
        if self.schema != DEFAULT_SCHEMA:
            found.put("schema", self.schema, place("SCHEMA"))
        return found

    def check(self) -> None:
        """Raise ConfigError for a value of the wrong kind, and for options that are unknown or wrong."""
        for name, kind in TEXTS.items():
            if not isinstance(value := getattr(self, name), kind):
                raise ConfigError(f"{place(name.upper())}: expected text, got {value!r}")
        for name in ("task_modules", "tasks", "plugins", "client_plugins"):
            value = getattr(self, name)
            if isinstance(value, str) or not all(isinstance(each, str) for each in value):
                raise ConfigError(f"{place(name.upper())}: expected a list of strings, got {value!r}")
        if not isinstance(self.options, Mapping):
            raise ConfigError(f"{place('OPTIONS')}: expected a dictionary, got {self.options!r}")
        for name, meant in NOT_OPTIONS.items():
            if name in self.options:
                raise ConfigError(f"{place('OPTIONS')}: {name}: {meant}")
        if self.options.keys() <= WORKER_OPTIONS:
            try:
                _ = self.worker_options
            except ConfigError as error:
                raise ConfigError(f"{place('OPTIONS')}: {error}") from None
        else:
            resolve_settings({}, {}, host=Host(self.source()))

    def _options(self) -> dict[str, Any]:
        given = {name: value for name, value in self.options.items() if value is not None}
        if self.plugins:
            given["plugins"] = [*map(plugin_name, self.plugins), *given.get("plugins", ())]
        return given


KEYS = tuple(each.name.upper() for each in fields(DjangoSettings))
TEXTS = {"database": str, "schema": str, "connection_string": str | None, "crontab": str | None}
WORKER_OPTIONS = frozenset(OPTION_NAMES)
NOT_OPTIONS = {
    "schema": f"this is the key SCHEMA of {SETTING}",
    "connection_string": f"this is the key CONNECTION_STRING of {SETTING}",
    "app": "a worker in a Django project runs the tasks of its applications",
}
"""What may not be among the options, and why."""


def place(key: str) -> str:
    """How messages name a key of the setting."""
    return f"setting {SETTING}[{key!r}]"


_latest: tuple[dict[str, Any], DjangoSettings] | None = None
"""The setting as it was when it was last checked: every job that is added asks for it."""


def worker_settings() -> DjangoSettings:
    """The setting, checked; raises ImproperlyConfigured."""
    global _latest
    given = getattr(settings, SETTING, {})
    if _latest is not None and _latest[0] == given:
        return _latest[1]
    if not isinstance(given, Mapping):
        raise ImproperlyConfigured(f"{SETTING} must be a dictionary, got {given!r}")
    for key in given:
        if key not in KEYS:
            near = closest(str(key), KEYS)
            hint = f"did you mean {near!r}?" if near else f"known: {', '.join(KEYS)}"
            raise ImproperlyConfigured(f"{SETTING} has no key {key!r}; {hint}")
    found = DjangoSettings(**{key.lower(): value for key, value in given.items()})
    try:
        found.check()
    except ConfigError as error:
        raise ImproperlyConfigured(str(error)) from None
    _latest = {key: dict(each) if isinstance(each, Mapping) else each for key, each in given.items()}, found
    return found


def plugin_name(name: str) -> str:
    """The name of a plugin for the worker, `module:attribute`, from a dotted path as Django names things."""
    return name if ":" in name else ":".join(name.rsplit(".", 1))


def chosen_settings(flags: Mapping[str, Any]) -> Settings:
    """What applies to a worker: flags, else the environment, else the setting, else the defaults."""
    return resolve_settings({}, call="command line", host=host(flags))


def host(flags: Mapping[str, Any]) -> Host:
    """The project as the host of a worker or a command. Flags that are None are not given."""
    chosen = worker_settings()
    source = chosen.source()
    of_alias = f"setting DATABASES[{chosen.database!r}]"
    where = place("CONNECTION_STRING") if chosen.connection_string else of_alias
    source.put("connection_string", connection_string(), where)
    return Host(source, {name: value for name, value in flags.items() if value is not None})


def table_name(name: str) -> str:
    """A table in the schema of the jobs, for a model: Django leaves names alone that are quoted already."""
    try:
        schema = worker_settings().schema
    except ImproperlyConfigured:  # the system checks say so
        schema = DjangoSettings().schema
    return SchemaName(schema).quoted + f'."{name}"'


def connection_string() -> str:
    """Where workers connect: the setting, or what the alias says, which is the test database in tests."""
    chosen = worker_settings()
    return chosen.connection_string or connection_string_of(chosen.database)


def check_alias(alias: str) -> list[CheckMessage]:
    """E002: whether the alias is that of a PostgreSQL database."""
    if alias not in connections:
        return [Error(f"there is no database {alias!r} in DATABASES", id="graphile_worker.E002")]
    if connections[alias].vendor != "postgresql":
        return [Error(f"the database {alias!r} is not PostgreSQL", id="graphile_worker.E002")]
    return []


def connection_string_of(alias: str) -> str:
    """A connection string for one of Django's databases; options that libpq does not know are refused."""
    database = connections[alias].settings_dict
    if connections[alias].vendor != "postgresql":
        raise ImproperlyConfigured(f"the database {alias!r} is not PostgreSQL")
    parameters: dict[str, str] = {}
    for name, value in (database.get("OPTIONS") or {}).items():
        if name == "assume_role":
            parameters["options"] = f"{parameters.get('options', '')} -c role={value}".strip()
        elif name in OF_LIBPQ:
            before = f"{parameters[name]} " if name == "options" and "options" in parameters else ""
            parameters[name] = before + str(value)
        elif name not in OF_DJANGO:
            raise ImproperlyConfigured(
                f"DATABASES[{alias!r}]['OPTIONS'][{name!r}] cannot be passed to a worker; set "
                f"{SETTING}['CONNECTION_STRING']"
            )
    values = {"host": database.get("HOST"), "port": database.get("PORT"), "user": database.get("USER"),
              "password": database.get("PASSWORD"), "dbname": database.get("NAME")}  # fmt: skip
    parameters |= {name: str(value) for name, value in values.items() if value}
    return f"postgresql:///?{urlencode(parameters, quote_via=quote)}"
