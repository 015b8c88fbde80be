"""Judges the upkeep of the jobs table: dead rows, bloat, vacuum, and what holds it back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..schema_name import SchemaName
from .facts import OldTransaction, TableFacts
from .finding import Finding, Thresholds, age, size, well

USUAL_ROW = 200  # bytes, where no statistics tell
ROW_OVERHEAD = 32
FILLED = 0.2
"""A table of which less than this share holds rows is bloated."""
ADVISED = "autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000"


def check_table(table: TableFacts, schema: SchemaName, thresholds: Thresholds) -> Iterator[Finding]:
    """Dead rows, empty space, and settings of the table."""
    name = f"{schema.quoted}._private_jobs"
    found = [*_dead_rows(table, name, thresholds), *_bloat(table, name, thresholds)]
    found += _settings(table, name, thresholds)
    last = "never vacuumed" if table.vacuumed_ago is None else f"vacuumed {age(table.vacuumed_ago)} ago"
    yield from found or [well("table", f"about {table.live:,} jobs in {size(table.table_bytes)}, {last}")]


def _dead_rows(table: TableFacts, name: str, thresholds: Thresholds) -> Iterator[Finding]:
    if table.dead < thresholds.dead_rows or table.dead < table.live / 2:
        return
    last = (
        "has never been vacuumed"
        if table.vacuumed_ago is None
        else f"was vacuumed {age(table.vacuumed_ago)} ago"
    )
    yield Finding(
        "table", "warning", f"the jobs table has {table.dead:,} dead rows beside {table.live:,} live ones",
        f"It {last}. Every fetch steps over dead rows, and gets slower with them.",
        f"vacuum (analyze) {name}; and if they do not go away, see the findings about transactions.",
    )  # fmt: skip


def _bloat(table: TableFacts, name: str, thresholds: Thresholds) -> Iterator[Finding]:
    needed = (table.live + table.dead) * ((table.row_bytes or USUAL_ROW) + ROW_OVERHEAD)
    if table.table_bytes >= thresholds.bloat_bytes and needed < table.table_bytes * FILLED:
        yield Finding(
            "table", "warning",
            f"the jobs table takes {size(table.table_bytes)}, of which about {size(needed)} is in use "
            f"(indexes: {size(table.index_bytes)})",
            "It was larger once. The empty space is used again by new jobs, but statements that read the "
            "whole table read all of it.",
            f"In a quiet moment, with the workers stopped: vacuum full {name}; or use pg_repack.",
        )  # fmt: skip


def _settings(table: TableFacts, name: str, thresholds: Thresholds) -> Iterator[Finding]:
    if "autovacuum_enabled=false" in table.settings or "autovacuum_enabled=off" in table.settings:
        yield Finding(
            "table", "warning", "autovacuum is switched off for the jobs table",
            "Nobody removes the rows that finished jobs leave behind.",
            f"alter table {name} reset (autovacuum_enabled);",
        )  # fmt: skip
    elif table.changes >= thresholds.busy_changes and not any(
        setting.startswith("autovacuum_vacuum") for setting in table.settings
    ):
        yield Finding(
            "table", "info", "the jobs table is busy and is vacuumed by the server's usual rules",
            "By default vacuum starts when a fifth of a table is dead, which is late for a queue that has a "
            "backlog.",
            f"alter table {name} set ({ADVISED});",
        )  # fmt: skip


def check_transactions(transactions: Sequence[OldTransaction]) -> Iterator[Finding]:
    """What holds vacuum back."""
    if not transactions:
        yield well("transactions", "no transaction has been open for long")
        return
    for one in transactions:
        since = f" for {age(one.age)}" if one.age is not None else ""
        what = f" ({one.what})" if one.what else ""
        ending = {
            "session": f"select pg_terminate_backend({one.name}); and set "
            "idle_in_transaction_session_timeout where such sessions come from.",
            "prepared transaction": f"commit prepared '{one.name}'; or rollback prepared '{one.name}';",
            "replication slot": f"select pg_drop_replication_slot('{one.name}'); if nobody needs it any "
            "more.",
        }[one.kind]
        yield Finding(
            "transactions", "warning", f"the {one.kind} {one.name}{what} holds vacuum back{since}",
            "Rows of jobs that finished since then cannot be removed, and fetching gets slower meanwhile.",
            ending,
        )  # fmt: skip
