"""What all fuzzing shares: a desk per module, and the number of cases at the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fuzz.cases import tried
from fuzz.desk import Desk, opened_desk
from support.server import DatabaseServer


@pytest.fixture(scope="module")
def desk(server: DatabaseServer, template_database: str) -> Iterator[Desk]:
    """A database and a connection that all tests of a module share; each case is undone."""
    with opened_desk(server, template_database) as desk:
        yield desk


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for what, count in sorted(tried.items()):
        terminalreporter.write_line(f"fuzzed {what}: {count:,} cases")
