"""Plans as in production: the package's own calls, with each statement explained before it runs.

The server keeps one generic plan for each statement of the worker's two connections (see
`session/tune_session`). PREPARE and EXPLAIN EXECUTE show exactly that plan; EXPLAIN with the parameters at
hand would show another.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from graphile_worker.database.sql import load
from graphile_worker.database.statements.inspection import sorts_within_groups
from graphile_worker.values.schema_name import SchemaName

JOBS = "_private_jobs"
NO_SCANS = frozenset({"ModifyTable", "LockRows"})
RUNS = 3
"""How often a statement is explained; the first run marks dead entries that the others skip."""


@dataclass(frozen=True)
class Plan:
    """One executed plan."""

    root: dict[str, Any]

    @property
    def nodes(self) -> Iterator[dict[str, Any]]:
        waiting = [self.root]
        while waiting:
            node = waiting.pop()
            waiting.extend(node.get("Plans", ()))
            yield node

    @property
    def job_scans(self) -> list[dict[str, Any]]:
        """The nodes that read rows of the jobs table."""
        return [
            node
            for node in self.nodes
            if node.get("Relation Name") == JOBS and node["Node Type"] not in NO_SCANS
        ]

    @property
    def touched(self) -> float:
        """Rows of the jobs table that were read, taken or not."""
        return sum(map(_rows, self.job_scans))

    @property
    def pages(self) -> int:
        """Pages that were read to find rows through indexes; dead rows show here alone."""
        scans = sum(_pages(node) for node in self.job_scans if "Index Name" in node and "Plans" not in node)
        return min(scans, self.all_pages)  # a scan for ids includes the pages of the subquery that finds them

    @property
    def all_pages(self) -> int:
        """Pages that the whole statement read, of any table."""
        return _pages(self.root)

    @property
    def all_rows(self) -> float:
        """Rows that were read of any table, taken or not."""
        return sum(
            _rows(node)
            for node in self.nodes
            if "Relation Name" in node and node["Node Type"] not in NO_SCANS
        )

    @property
    def kinds_of_scans(self) -> set[str]:
        """How the jobs table is read: Index Scan, Index Only Scan, Tid Scan, Seq Scan, ..."""
        return {node["Node Type"] for node in self.job_scans}

    def describe(self) -> str:
        """The scans of the jobs table, for messages."""
        return self._describe(self.job_scans)

    def describe_all(self) -> str:
        """The scans of all tables."""
        return self._describe([node for node in self.nodes if "Relation Name" in node])

    @staticmethod
    def _describe(nodes: Sequence[dict[str, Any]]) -> str:
        return "\n".join(
            f"{node['Node Type']} {node.get('Index Name', node['Relation Name'])} "
            f"({node.get('Subplan Name', '')}): "
            f"{node['Actual Rows']} rows + {node.get('Rows Removed by Filter', 0)} removed, "
            f"{node['Actual Loops']} times; {_pages(node)} pages"
            for node in nodes
            if node["Actual Loops"]
        )


class ExplainingConnection:
    """A connection that explains each statement, rolls it back, and then runs it."""

    def __init__(self, connection: Any, *, keeps_plans: bool = False) -> None:
        """`keeps_plans`: make the plan of a statement once, as a worker's session does.

        Without it, a plan is always made for the tables as they are.
        """
        self._connection = connection
        self._keeps_plans = keeps_plans
        self._prepared: dict[str, str] = {}
        self.plans: list[Plan] = []
        self.server_version: str | None = None
        """If set, statements are chosen for this version instead of the server's own."""

    async def fetch(self, query: str, *arguments: Any, timeout: float | None = None) -> Any:
        await self._explain(query, arguments)
        return await self._connection.fetch(query, *arguments)

    async def fetchrow(self, query: str, *arguments: Any, timeout: float | None = None) -> Any:
        await self._explain(query, arguments)
        return await self._connection.fetchrow(query, *arguments)

    async def fetchval(self, query: str, *arguments: Any, timeout: float | None = None) -> Any:
        await self._explain(query, arguments)
        return await self._connection.fetchval(query, *arguments)

    async def execute(self, query: str, *arguments: Any, timeout: float | None = None) -> Any:
        await self._explain(query, arguments)
        return await self._connection.execute(query, *arguments)

    def transaction(self) -> Any:
        return self._connection.transaction()

    def is_in_transaction(self) -> bool:
        return bool(self._connection.is_in_transaction())

    def get_settings(self) -> Any:
        if self.server_version is not None:
            return SimpleNamespace(server_version=self.server_version)
        return self._connection.get_settings()

    @property
    def sorts_within_groups(self) -> bool:
        connection: Any = self
        return sorts_within_groups(connection)

    async def _explain(self, query: str, arguments: Sequence[Any]) -> None:
        """Keep the cheapest of several runs of the same plan.

        Earlier tests leave index entries of rows that they rolled back. The first scan that meets such an
        entry reads a page of the table to learn that the row is dead, then marks the entry, and later scans
        skip it. How many are unmarked depends on how fast the earlier tests ran. Entries of live rows, and of
        deleted rows that another transaction still sees, cost the same in every run.
        """
        runs = [await self._explain_once(query, arguments) for _ in range(RUNS)]
        self.plans.append(min(runs, key=lambda plan: plan.pages))

    async def _explain_once(self, query: str, arguments: Sequence[Any]) -> Plan:
        name = self._prepared.get(query)
        values = ", ".join(map(_literal, arguments))
        undo = self._connection.transaction()
        await undo.start()
        if name is None:
            name = f"explained_{len(self._prepared)}"
            await self._connection.execute(f"prepare {name} as {query}")
        execute = f"execute {name}({values})" if values else f"execute {name}"
        found = await self._connection.fetchval(f"explain (analyze, buffers, format json) {execute}")
        if self._keeps_plans:
            self._prepared[query] = name  # a rollback leaves it prepared
        else:
            await self._connection.execute(f"deallocate {name}")
        await undo.rollback()
        return Plan(json.loads(found)[0]["Plan"])


async def tune(connection: Any, schema: SchemaName) -> None:
    """Apply the settings of the worker's connections."""
    await connection.fetch(load("session/tune_session", schema))


def _rows(node: dict[str, Any]) -> float:
    removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return float(node["Actual Loops"] * (node["Actual Rows"] + removed))


def _pages(node: dict[str, Any]) -> int:
    return int(node["Shared Hit Blocks"] + node["Shared Read Blocks"])


def _literal(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        items = ("null" if item is None else json.dumps(str(item)) for item in value)
        value = "{" + ",".join(items) + "}"
    return "'" + str(value).replace("'", "''") + "'"
