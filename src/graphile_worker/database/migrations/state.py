"""Reads the state of a schema."""

from __future__ import annotations

from datetime import timedelta

import msgspec
from msgspec.structs import replace

from ...errors import MigrationError
from ...values.schema_name import SchemaName
from ..connections.connection import Connection
from ..sql import load
from .revisions import RUST_REVISIONS, SUPPORTED_REVISION

LEDGER_COLUMNS = frozenset({"id", "ts"})


class SchemaState(msgspec.Struct, frozen=True, kw_only=True):
    """The schema according to the catalogue and the shared ledger."""

    server_version: int
    schema_exists: bool
    objects: tuple[str, ...]
    """Tables, views and types of any revision of the shared schema."""
    has_own_ledger: bool
    jobs_table: int | None = None
    """The oid of the jobs table; it changes when the schema is dropped and installed again."""
    ledger_exists: bool = False
    ledger_marks_breaking: bool = False
    revision: int | None = None
    breaking_revision: int | None = None
    age: timedelta | None = None
    """Age of the newest row of the ledger."""
    rust_revision: int | None = None
    """The latest revision of the Rust port whose objects exist."""

    @property
    def known_revision(self) -> int:
        """The latest revision whose objects this package knows."""
        return max(SUPPORTED_REVISION, self.rust_revision or 0)


async def read_state(connection: Connection, schema: SchemaName) -> SchemaState:
    """Read the state; raises if the table `migrations` is not Graphile Worker's."""
    (catalog,) = await connection.fetch(load("migrate/catalog", schema), schema.name)
    state = SchemaState(
        server_version=catalog["server_version"],
        schema_exists=catalog["schema_exists"],
        objects=tuple(catalog["objects"]),
        has_own_ledger=catalog["has_own_ledger"],
        jobs_table=catalog["jobs_table"],
        rust_revision=_rust_revision(frozenset(catalog["rust_marks"])),
    )
    columns = frozenset(catalog["ledger_columns"])
    if not columns:
        return state
    if not columns >= LEDGER_COLUMNS:
        raise MigrationError(
            f"the table {schema.quoted}.migrations is not Graphile Worker's: it has the columns "
            f"{', '.join(catalog['ledger_columns'])}; choose another schema for Graphile Worker"
        )
    if "breaking" not in columns:
        (ledger,) = await connection.fetch(load("migrate/ledger_without_breaking", schema))
        return replace(state, ledger_exists=True, revision=ledger["revision"], age=ledger["age"])
    (ledger,) = await connection.fetch(load("migrate/ledger", schema))
    return replace(
        state,
        ledger_exists=True,
        ledger_marks_breaking=True,
        revision=ledger["revision"],
        breaking_revision=ledger["breaking_revision"],
        age=ledger["age"],
    )


def _rust_revision(marks: frozenset[str]) -> int | None:
    return max((revision for revision, of in RUST_REVISIONS.items() if of <= marks), default=None)
