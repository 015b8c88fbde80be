"""What tests of the history share."""

from __future__ import annotations

import pytest

from support.server import DatabaseServer


@pytest.fixture(scope="session")
def template_database(server: DatabaseServer) -> str:
    """A template without partitions: the first worker of a test makes them, as in a new installation."""
    return server.create_template()
