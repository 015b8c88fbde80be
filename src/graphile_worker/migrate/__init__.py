"""Installing and upgrading the database schema.

`migrate` changes a database; `migration_sql` gives the same as a script for people who migrate with other
tools. `shared` is the line we have in common with Node and Rust, `extensions` our own.
"""

from __future__ import annotations

from .own_objects import known_extensions
from .revisions import BREAKING_REVISIONS, OLDEST_UPGRADABLE_REVISION, SUPPORTED_REVISION
from .run import MigrationReport, migrate
from .script import migration_sql

__all__ = [
    "BREAKING_REVISIONS",
    "OLDEST_UPGRADABLE_REVISION",
    "SUPPORTED_REVISION",
    "MigrationReport",
    "known_extensions",
    "migrate",
    "migration_sql",
]
