"""Fixtures of the interoperability tests: Node's packages, and databases that Node and we both use."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest

from interop.node import Node
from interop.node_packages import NodePackages, provide
from interop.runs import Runs
from support.server import DatabaseServer


@dataclass(frozen=True)
class SharedDatabase:
    """A database of a test's own, and the ways to reach it."""

    url: str
    connection: Any
    node: Node
    runs: Runs


@pytest.fixture(scope="session")
def node_packages() -> NodePackages:
    """Node.js and Graphile Worker for Node.js; skips where npm cannot get them."""
    return provide()


@pytest.fixture(scope="session")
def node_template(server: DatabaseServer, node_packages: NodePackages) -> Iterator[str]:
    """The name of a database in which Node installed the schema, to be cloned."""
    name = server.create_database()
    command_line = node_packages.command_line()
    subprocess.run(
        [node_packages.binary, command_line, "-c", server.url(name), "--schema-only"],
        check=True,
        capture_output=True,
        timeout=60,
    )
    yield name
    server.drop_database(name)


@asynccontextmanager
async def shared_database(url: str, packages: NodePackages) -> AsyncIterator[SharedDatabase]:
    connection = await asyncpg.connect(url)
    try:
        runs = Runs(connection)
        await runs.prepare()
        yield SharedDatabase(url, connection, Node(packages, url), runs)
    finally:
        await connection.close(timeout=60)


@pytest.fixture
async def our_database(node_packages: NodePackages, database_url: str) -> AsyncIterator[SharedDatabase]:
    """A database with the schema as we install it."""
    async with shared_database(database_url, node_packages) as shared:
        yield shared


@pytest.fixture
async def node_database(
    node_packages: NodePackages, node_template: str, create_database: Callable[..., str]
) -> AsyncIterator[SharedDatabase]:
    """A database with the schema as Node 0.18 installs it."""
    async with shared_database(create_database(template=node_template), node_packages) as shared:
        yield shared


@pytest.fixture(params=["our schema", "schema of Node"])
async def either_database(
    request: pytest.FixtureRequest,
    node_packages: NodePackages,
    template_database: str,
    node_template: str,
    create_database: Callable[..., str],
) -> AsyncIterator[SharedDatabase]:
    """A database with the schema as we install it and, in a second run of the test, as Node does."""
    template = template_database if request.param == "our schema" else node_template
    async with shared_database(create_database(template=template), node_packages) as shared:
        yield shared


@pytest.fixture
async def empty_database(
    node_packages: NodePackages, empty_database_url: str
) -> AsyncIterator[SharedDatabase]:
    """A database in which nobody installed the schema yet."""
    async with shared_database(empty_database_url, node_packages) as shared:
        yield shared
