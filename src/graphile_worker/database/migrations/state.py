"""The revisions of the shared schema, the files that upgrade to each, and reading the state of a schema.

The numbers are Node's. Only 1 to 20 may be written to the shared ledger, with Node's breaking flags; the
Python-only objects have a ledger of their own (see `own_objects`).
"""

from __future__ import annotations

from datetime import timedelta

import msgspec
from msgspec.structs import replace

from ...errors import MigrationError
from ...values.schema_name import SchemaName
from ..connections.connection import Connection, Row
from ..connections.encoding import teach_arrays
from ..connections.errors import sqlstate_of
from ..connections.retry import is_retryable
from ..sql import load

SUPPORTED_REVISION = 20
OLDEST_UPGRADABLE_REVISION = 16
OLDEST_SERVER_VERSION = 120000
BREAKING_REVISIONS = frozenset({1, 3, 11, 13, 14, 16, 19})

_ADDING = ("functions/add_job", "functions/add_jobs")
_REMOVING = ("functions/remove_job",)
_MANAGING = (
    "functions/complete_jobs",
    "functions/permanently_fail_jobs",
    "functions/reschedule_jobs",
    "functions/force_unlock_workers",
)

BASELINE: tuple[str, ...] = ("baseline", "000017_jobs_view", *_ADDING, *_REMOVING, *_MANAGING, "installed")
"""Revision 20 as a whole, for a fresh database."""

UPGRADES: dict[int, tuple[str, ...]] = {
    17: ("000017_jobs_view",),
    18: ("000018_no_trigger", *_ADDING, *_REMOVING),
    19: (),  # only a marker: from here on `locked_by` is the id of the pool
    20: _ADDING,
}
"""The changes of each revision after 16; functions are always installed in their current form."""

RUST_REVISIONS: dict[int, frozenset[str]] = {
    21: frozenset({"_private_workers", "GWNOR"}),
    22: frozenset({"_private_job_retirements", "_private_return_jobs"}),
}
"""Later revisions that Rust workers apply, and the marks that each leaves (see `migrate/catalog`).

They are recognised by these marks, because a number above 20 may mean something else one day. None is
breaking.
"""

FUNCTION_QUOTE = "$body$"
"""The quote around function bodies in the files."""
INNER_QUOTE = "$inner_body$"
"""The quote around function bodies that a block creates."""


def check_name(schema: SchemaName) -> None:
    """Refuse a name that would end a function's body early."""
    for quote in (FUNCTION_QUOTE, INNER_QUOTE):
        if quote in schema.name:
            raise MigrationError(f"the schema's name must not contain {quote}: {schema.name}")


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
    own_changes: frozenset[int] | None = None
    """The numbers in the ledger of the Python-only objects; None if they were not read."""

    @property
    def known_revision(self) -> int:
        """The latest revision whose objects this package knows."""
        return max(SUPPORTED_REVISION, self.rust_revision or 0)

    @property
    def rust_revisions(self) -> tuple[int, ...]:
        """The revisions of the ledger above 20 that are those of the Rust port."""
        last = min(self.revision or 0, self.rust_revision or 0)
        return tuple(range(SUPPORTED_REVISION + 1, last + 1))


async def read_state(connection: Connection, schema: SchemaName) -> SchemaState:
    """Read the state; raises if the table `migrations` is not Graphile Worker's."""
    if not connection.is_in_transaction():  # an error would end it
        teach_arrays(connection)
        try:
            (row,) = await connection.fetch(load("migrate/whole_state", schema), schema.name)
        except Exception as error:
            if sqlstate_of(error) is None or is_retryable(error):
                raise  # about the connection, not about the schema
        else:
            state = replace(_with_ledger(_catalog_state(row), row), own_changes=frozenset(row["own_changes"]))
            if state.revision is not None:  # else what the ledger of our objects lists may be gone
                return state
    return await _read_in_steps(connection, schema)


async def _read_in_steps(connection: Connection, schema: SchemaName) -> SchemaState:
    """As `read_state`, with statements that succeed whatever exists."""
    (catalog,) = await connection.fetch(load("migrate/catalog", schema), schema.name)
    state = _catalog_state(catalog)
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
    if ledger["revision"] is not None and ledger["revision"] > state.known_revision:
        # A Rust worker may have migrated between the two statements.
        (catalog,) = await connection.fetch(load("migrate/catalog", schema), schema.name)
        state = replace(state, rust_revision=_rust_revision(frozenset(catalog["rust_marks"])))
    return _with_ledger(state, ledger)


def _catalog_state(row: Row) -> SchemaState:
    return SchemaState(
        server_version=row["server_version"],
        schema_exists=row["schema_exists"],
        objects=tuple(row["objects"]),
        has_own_ledger=row["has_own_ledger"],
        jobs_table=row["jobs_table"],
        rust_revision=_rust_revision(frozenset(row["rust_marks"])),
    )


def _with_ledger(state: SchemaState, row: Row) -> SchemaState:
    return replace(
        state,
        ledger_exists=True,
        ledger_marks_breaking=True,
        revision=row["revision"],
        breaking_revision=row["breaking_revision"],
        age=row["age"],
    )


def _rust_revision(marks: frozenset[str]) -> int | None:
    return max((revision for revision, of in RUST_REVISIONS.items() if of <= marks), default=None)
