"""Entry point of migrations: the shared schema first, then the Python-only objects."""

from __future__ import annotations

import msgspec

from ...values.schema_name import SchemaName
from ..connections.connection import Connection
from .own_objects import Change, migrate_own_objects
from .shared import migrate_shared
from .state import SUPPORTED_REVISION, check_name


class MigrationReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `migrate` found and did."""

    schema: SchemaName
    found_revision: int | None
    """The revision before; None when nothing was installed."""
    revision: int
    """The revision now; above 20 if a newer worker applied migrations that are not breaking."""
    applied_revisions: tuple[int, ...]
    applied_own_objects: tuple[int, ...]
    missing_own_objects: frozenset[str]
    """Python-only objects that are missing: the role may not create them, or they were not asked for."""
    rust_revisions: tuple[int, ...] = ()
    """Later revisions that Rust workers applied, by the objects that they left."""

    @property
    def has_own_objects(self) -> bool:
        """Whether all Python-only objects exist."""
        return not self.missing_own_objects

    @property
    def has_tables(self) -> bool:
        """Whether the objects exist that recovery and fast fetches need."""
        return not self.missing_own_objects & {"queue_indexes", "workers"}

    @property
    def has_keyed_index(self) -> bool:
        """Whether the index exists that held batches need."""
        return "keyed_index" not in self.missing_own_objects

    @property
    def has_history(self) -> bool:
        """Whether the tables of the history exist."""
        return not self.missing_own_objects & {"history", "progress"}

    @property
    def has_control(self) -> bool:
        """Whether the tables for pauses and cancelled jobs exist."""
        return not self.missing_own_objects & {"control", "tracks"}

    @property
    def has_schedules(self) -> bool:
        """Whether the tables for recurring jobs exist."""
        return "schedules" not in self.missing_own_objects

    @property
    def has_limits(self) -> bool:
        """Whether the tables and the function for limits exist."""
        return not self.missing_own_objects & {"limits", "queue_indexes"}

    @property
    def has_held_limits(self) -> bool:
        """Whether the function exists that lets held batches have limited jobs."""
        return "held_limits" not in self.missing_own_objects

    @property
    def has_flag_rules(self) -> bool:
        """Whether the function exists that keeps limits in workers with accepted flags or an allowlist."""
        return "flag_rules" not in self.missing_own_objects

    @property
    def has_rust_register(self) -> bool:
        """Whether the Rust port's table of workers exists; if not, a Rust worker may create it later."""
        return "rust_register" not in self.missing_own_objects

    @property
    def has_statistics(self) -> bool:
        """Whether the tables for statistics exist."""
        return "figures" not in self.missing_own_objects

    @property
    def has_failure_handlers(self) -> bool:
        """Whether the tables for the handlers of permanent failures exist."""
        return "failure_handlers" not in self.missing_own_objects

    @property
    def changed(self) -> bool:
        """Whether anything was applied."""
        return bool(self.applied_revisions or self.applied_own_objects)


async def migrate(connection: Connection, schema: SchemaName, *, own_objects: bool = True) -> MigrationReport:
    """Install the schema or upgrade it to the revision this package supports; idempotent.

    Raises SchemaTooOldError, SchemaTooNewError, PermissionDeniedError or MigrationError, each with advice.
    Several processes, also of other runtimes, may migrate at the same time.
    """
    check_name(schema)
    found, applied = await migrate_shared(connection, schema)
    applied_own_objects: tuple[int, ...] = ()
    missing = frozenset(change.label for change in Change)
    if own_objects:
        applied_own_objects, missing = await migrate_own_objects(connection, schema, found)
    return MigrationReport(
        schema=schema,
        found_revision=found.revision,
        revision=max(found.revision or 0, SUPPORTED_REVISION),
        applied_revisions=applied,
        applied_own_objects=applied_own_objects,
        missing_own_objects=missing,
        rust_revisions=found.rust_revisions,
    )
