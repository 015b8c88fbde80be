"""What tests of the worker share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from graphile_worker import WorkerUtils, make_worker_utils


@pytest.fixture
async def utils(database_url: str) -> AsyncIterator[WorkerUtils]:
    """A client of the test's own database."""
    async with make_worker_utils(connection_string=database_url) as utils:
        yield utils
