"""The schema as we install it and as Node installs it: object for object the same."""

from __future__ import annotations

import pytest

from interop import catalogue
from interop.conftest import SharedDatabase
from interop.node import Node

pytestmark = pytest.mark.interop


async def test_our_install_has_the_same_catalogue_as_nodes(
    our_database: SharedDatabase, node_database: SharedDatabase
) -> None:
    ours = await catalogue.read(our_database.connection)
    theirs = await catalogue.read(node_database.connection)
    for kind in theirs:
        assert ours[kind] == theirs[kind], kind


async def test_the_comparison_sees_real_objects(node_database: SharedDatabase) -> None:
    theirs = await catalogue.read(node_database.connection)
    counts = {kind: len(rows) for kind, rows in theirs.items()}
    tables_view_and_type, sequences, indexes = 5 + 1 + 1, 3, 10
    assert counts["relations"] == tables_view_and_type + sequences + indexes
    assert counts["indexes"] == indexes
    assert counts["sequences"] == sequences
    assert counts["functions"] == 7
    assert counts["views"] == counts["rules"] == 1
    assert counts["triggers"] == counts["policies"] == counts["comments"] == 0


async def test_our_ledger_is_nodes(our_database: SharedDatabase, node_database: SharedDatabase) -> None:
    ours = await catalogue.ledger(our_database.connection)
    assert ours == await catalogue.ledger(node_database.connection) == catalogue.FULL_LEDGER


async def test_the_catalogues_agree_in_a_schema_with_an_awkward_name(
    our_database: SharedDatabase, node_database: SharedDatabase
) -> None:
    from graphile_worker.database.migrations import migrate
    from graphile_worker.values.schema_name import SchemaName

    name = 'Jobs of "B" & Co'
    await migrate(our_database.connection, SchemaName(name))
    ended = await Node(node_database.node.packages, node_database.url, name).command("--schema-only")
    assert ended.status == 0, ended.output
    assert await catalogue.read(our_database.connection, name) == await catalogue.read(
        node_database.connection, name
    )
