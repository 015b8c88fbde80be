"""The whole schema as one SQL script, for people who migrate with other tools."""

from __future__ import annotations

from ..schema_name import SchemaName
from ..sql import load
from .own_objects import known_extensions
from .revisions import BASELINE, check_name


def migration_sql(schema: SchemaName) -> str:
    """A script that installs everything into a database that does not have it, in one transaction."""
    check_name(schema)
    paths = [
        "migrations/script_begin",
        *(f"migrations/{name}" for name in BASELINE),
        *(extension.path for extension in known_extensions()),
        "migrations/script_end",
    ]
    return "\n".join(load(path, schema) for path in paths)
