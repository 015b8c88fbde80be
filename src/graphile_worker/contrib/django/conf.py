"""The setting GRAPHILE_WORKER, and a connection string from Django's databases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import quote, urlencode

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.utils.module_loading import import_string

from ...errors import ConfigError
from ...hooks import Plugin
from ...values.options import WorkerOptions
from ...values.schema_name import SchemaName
from ...values.text import closest

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


@dataclass(frozen=True, slots=True, kw_only=True)
class DjangoSettings:
    """What the setting GRAPHILE_WORKER says; keys are the names in upper case."""

    database: str = "default"
    """The alias of the database that has the jobs."""
    schema: str = "graphile_worker"
    connection_string: str | None = None
    """For workers, in place of the alias: to bypass a pooler, for example."""
    task_modules: Sequence[str] = ("tasks",)
    """Modules of installed applications that the worker imports."""
    tasks: Sequence[str] = ()
    """Further modules with tasks."""
    crontab: str | None = None
    """Recurring jobs, as the text of a crontab."""
    plugins: Sequence[str] = ()
    """Plugins by their dotted paths, or by names such as `sentry`."""
    client_plugins: Sequence[str] = ()
    """Plugins of the site itself, which watch the jobs that it adds; named in the same way."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the worker by name, such as {"concurrency": 10}."""

    def worker_options(self, **more: Any) -> WorkerOptions:
        """The options of a worker; the environment and configuration files are not read."""
        given = {**self.options, "schema": self.schema, **more}
        return WorkerOptions.from_mapping({name: value for name, value in given.items() if value is not None})


KEYS = tuple(each.name.upper() for each in fields(DjangoSettings))


def worker_settings() -> DjangoSettings:
    """The setting, checked; raises ImproperlyConfigured."""
    given = getattr(settings, SETTING, {})
    if not isinstance(given, Mapping):
        raise ImproperlyConfigured(f"{SETTING} must be a dictionary, got {given!r}")
    for key in given:
        if key not in KEYS:
            near = closest(str(key), KEYS)
            hint = f"did you mean {near!r}?" if near else f"known: {', '.join(KEYS)}"
            raise ImproperlyConfigured(f"{SETTING} has no key {key!r}; {hint}")
    found = DjangoSettings(**{key.lower(): value for key, value in given.items()})
    try:
        found.worker_options()
    except ConfigError as error:
        raise ImproperlyConfigured(f"{SETTING}['OPTIONS']: {error}") from None
    return found


def plugin_named(name: str) -> Plugin | str:
    """A plugin by its dotted path, as Django names things; the worker loads those with other names."""
    is_dotted = "." in name and ":" not in name
    plugin: Plugin | str = import_string(name)() if is_dotted else name
    return plugin


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
