"""The schema as SQL scripts, for other migration tools."""

from __future__ import annotations

from ...errors import MigrationError
from ...values.schema_name import SchemaName
from ..sql import load
from .own_objects import OWN_FILES
from .state import BASELINE, check_name

_BASELINE = tuple(f"migrations/{name}" for name in BASELINE)
_OWN_FILES = tuple(file.path for file in OWN_FILES)
_QUOTE = "$graphile_worker_"
"""How the quotes in our scripts begin."""


def migration_sql(schema: SchemaName) -> str:
    """A script that installs everything into a fresh database, in one transaction."""
    check_name(schema)
    return _joined(
        schema,
        "migrations/script_begin",
        "migrations/script_schema",
        *_BASELINE,
        *_OWN_FILES,
        "migrations/script_end",
    )


def repeatable_sql(schema: SchemaName) -> str:
    """A script for the transaction of another tool; run again, it adds the Python-only objects that lack."""
    _check_quotes(schema)
    return _joined(
        schema,
        "migrations/script_schema",
        "migrations/script_repeatable_begin",
        *_BASELINE,
        "migrations/script_repeatable_end",
        *_OWN_FILES,
    )


def uninstall_sql(schema: SchemaName, *, drop_jobs: bool) -> str:
    """A script that drops the schema; it fails if there are jobs, unless they may be dropped."""
    _check_quotes(schema)
    name = "script_uninstall_with_jobs" if drop_jobs else "script_uninstall"
    return load(f"migrations/{name}", schema)


def _joined(schema: SchemaName, *paths: str) -> str:
    return "\n".join(load(path, schema) for path in paths)


def _check_quotes(schema: SchemaName) -> None:
    check_name(schema)
    if _QUOTE in schema.name:
        raise MigrationError(f"the name of the schema must not contain {_QUOTE}: {schema.name!r}")
