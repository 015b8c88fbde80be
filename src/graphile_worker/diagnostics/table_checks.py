"""Checks of the jobs table: dead rows, bloat, vacuum, and what holds it back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..values.schema_name import SchemaName
from ..values.text import count, duration
from .facts import OldTransaction, TableFacts
from .finding import Finding, Thresholds, size, well

USUAL_ROW = 200  # bytes, where there are no statistics
ROW_OVERHEAD = 32
FILLED = 0.2
"""A table that is filled to less than this share is bloated."""
ADVISED = "autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000"


def check_table(table: TableFacts, schema: SchemaName, thresholds: Thresholds) -> Iterator[Finding]:
    """Dead rows, empty space, and table settings."""
    name = f"{schema.quoted}._private_jobs"
    found = [*_dead_rows(table, name, thresholds), *_bloat(table, name, thresholds)]
    found += _settings(table, name, thresholds)
    ago = table.vacuumed_ago
    last = "never vacuumed" if ago is None else f"vacuumed {duration(ago, units=1)} ago"
    jobs = count(table.live, "job")
    yield from found or [well("table", f"about {jobs} in {size(table.table_bytes)}, {last}")]


def _dead_rows(table: TableFacts, name: str, thresholds: Thresholds) -> Iterator[Finding]:
    if table.dead < thresholds.dead_rows or table.dead < table.live / 2:
        return
    last = (
        "has never been vacuumed"
        if table.vacuumed_ago is None
        else f"was vacuumed {duration(table.vacuumed_ago, units=1)} ago"
    )
    yield Finding(
        "table", "warning", f"the jobs table has {table.dead:,} dead and {table.live:,} live rows",
        f"It {last}. Every fetch reads past dead rows and gets slower.",
        f"vacuum (analyze) {name}; if the dead rows stay, see the findings about transactions.",
    )  # fmt: skip


def _bloat(table: TableFacts, name: str, thresholds: Thresholds) -> Iterator[Finding]:
    needed = (table.live + table.dead) * ((table.row_bytes or USUAL_ROW) + ROW_OVERHEAD)
    if table.table_bytes >= thresholds.bloat_bytes and needed < table.table_bytes * FILLED:
        yield Finding(
            "table", "warning",
            f"the jobs table takes up {size(table.table_bytes)}, but uses only about {size(needed)} "
            f"(indexes: {size(table.index_bytes)})",
            "It was larger once. New jobs reuse the empty space, but a scan of the table reads all of it.",
            f"Stop the workers and run: vacuum full {name}; or use pg_repack.",
        )  # fmt: skip


def _settings(table: TableFacts, name: str, thresholds: Thresholds) -> Iterator[Finding]:
    if "autovacuum_enabled=false" in table.settings or "autovacuum_enabled=off" in table.settings:
        yield Finding(
            "table", "warning", "autovacuum is off for the jobs table",
            "The dead rows of finished jobs accumulate, and fetches get ever slower.",
            f"alter table {name} reset (autovacuum_enabled);",
        )  # fmt: skip
    elif table.changes >= thresholds.busy_changes and not any(
        setting.startswith("autovacuum_vacuum") for setting in table.settings
    ):
        yield Finding(
            "table", "info", "the jobs table is busy and has the default autovacuum settings",
            "By default vacuum starts when a fifth of a table is dead, which is late for a queue with a "
            "backlog.",
            f"alter table {name} set ({ADVISED});",
        )  # fmt: skip


def check_transactions(transactions: Sequence[OldTransaction]) -> Iterator[Finding]:
    """What holds vacuum back."""
    if not transactions:
        yield well("transactions", "no transaction has been open for long")
        return
    for one in transactions:
        since = f" for {duration(one.age, units=1)}" if one.age is not None else ""
        what = f" ({one.what})" if one.what else ""
        ending = {
            "session": f"select pg_terminate_backend({one.name}); and set "
            "idle_in_transaction_session_timeout where such sessions come from.",
            "prepared transaction": f"commit prepared '{one.name}'; or rollback prepared '{one.name}';",
            "replication slot": f"select pg_drop_replication_slot('{one.name}'); if it is no longer needed.",
        }[one.kind]
        yield Finding(
            "transactions", "warning", f"the {one.kind} {one.name}{what} holds vacuum back{since}",
            "Dead rows of jobs that finished since then cannot be removed, and fetches get slower.",
            ending,
        )  # fmt: skip
