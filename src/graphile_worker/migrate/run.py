"""The one door to migrating: the shared schema first, then our own objects."""

from __future__ import annotations

import msgspec

from ..db.connection import Connection
from ..schema_name import SchemaName
from .own_objects import known_extensions, migrate_extensions
from .revisions import SUPPORTED_REVISION, check_name
from .shared import migrate_shared


class MigrationReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a call of `migrate` found and did."""

    schema: SchemaName
    found_revision: int | None
    """The revision before; None when nothing was installed."""
    revision: int
    """The revision now; above 20 when a newer worker made changes that are not breaking."""
    applied_revisions: tuple[int, ...]
    applied_extensions: tuple[int, ...]
    missing_extensions: frozenset[str]
    """This package's own objects that are not there: the role may not create them, or was told not to."""

    @property
    def has_extensions(self) -> bool:
        """Whether all of this package's own objects are there."""
        return not self.missing_extensions

    @property
    def has_tables(self) -> bool:
        """Whether those are there that recovery and the fast ways of fetching need."""
        return not self.missing_extensions & {"queue_indexes", "workers"}

    @property
    def changed(self) -> bool:
        """Whether anything was applied."""
        return bool(self.applied_revisions or self.applied_extensions)


async def migrate(connection: Connection, schema: SchemaName, *, extensions: bool = True) -> MigrationReport:
    """Install the schema or bring it to the revision this package supports; harmless when it is there.

    Raises SchemaTooOldError, SchemaTooNewError, PermissionDeniedError or MigrationError, each with the way
    out. Several processes, also of other runtimes, may do this at the same time.
    """
    check_name(schema)
    found, applied = await migrate_shared(connection, schema)
    applied_extensions: tuple[int, ...] = ()
    missing = frozenset(extension.name for extension in known_extensions())
    if extensions:
        applied_extensions, missing = await migrate_extensions(connection, schema, found)
    return MigrationReport(
        schema=schema,
        found_revision=found.revision,
        revision=max(found.revision or 0, SUPPORTED_REVISION),
        applied_revisions=applied,
        applied_extensions=applied_extensions,
        missing_extensions=missing,
    )
