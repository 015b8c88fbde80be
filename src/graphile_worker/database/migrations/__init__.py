"""Installing and upgrading the database schema.

`migrate` changes a database; `migration_sql` returns the same as a script, for use with other migration
tools. `shared` has the migrations that Node, Rust and Python agree on, `own_objects` the Python-only objects.
"""

from __future__ import annotations

from .own_objects import OWN_FILES, Change
from .run import MigrationReport, migrate
from .script import migration_sql
from .state import BREAKING_REVISIONS, OLDEST_UPGRADABLE_REVISION, SUPPORTED_REVISION

__all__ = [
    "BREAKING_REVISIONS",
    "OLDEST_UPGRADABLE_REVISION",
    "OWN_FILES",
    "SUPPORTED_REVISION",
    "Change",
    "MigrationReport",
    "migrate",
    "migration_sql",
]
