"""The whole schema as one SQL script, for other migration tools."""

from __future__ import annotations

from ..schema_name import SchemaName
from ..sql import load
from .own_objects import known_own_objects
from .revisions import BASELINE, check_name


def migration_sql(schema: SchemaName) -> str:
    """A script that installs everything into a fresh database, in one transaction."""
    check_name(schema)
    paths = [
        "migrations/script_begin",
        *(f"migrations/{name}" for name in BASELINE),
        *(step.path for step in known_own_objects()),
        "migrations/script_end",
    ]
    return "\n".join(load(path, schema) for path in paths)
