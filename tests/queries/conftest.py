"""The statements of a pool, for the tests of this folder."""

from __future__ import annotations

from typing import Any

import pytest

from queries.statements import Statements, statements_on


@pytest.fixture
async def statements(connection: Any) -> Statements:
    return await statements_on(connection)
