"""The revisions of the shared schema, and the files that upgrade a database from one to the next.

The numbers are Node's. Only 1 to 20 may be written to the shared ledger, with Node's breaking flags; the
Python-only objects have a ledger of their own (see `own_objects`).
"""

from __future__ import annotations

from ...errors import MigrationError
from ...values.schema_name import SchemaName

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

BASELINE: tuple[str, ...] = (
    "baseline",
    "000017_jobs_view",
    *_ADDING,
    *_REMOVING,
    *_MANAGING,
    "installed",
)
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
