"""The tests of the asynchronous client, run with the blocking one in its place.

Those that add and manage jobs on connections of asyncpg are skipped; `tests/foreign` has them for others.
Those that make a client of their own are left out: it would be the asynchronous one again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from inspect import signature
from typing import Any

import pytest

from client.conftest import selection  # noqa: F401
from client.test_add_job import *  # noqa: F403
from client.test_add_jobs import *  # noqa: F403
from client.test_inspection import *  # noqa: F403
from client.test_manage_jobs import *  # noqa: F403
from graphile_worker import SyncWorkerUtils, make_sync_worker_utils
from graphile_worker.db.single import is_connection

for _test in [name for name in globals() if name.startswith("test_")]:
    if "utils" not in signature(globals()[_test]).parameters:
        del globals()[_test]


class InThreads:
    """The blocking client with methods to await: each call has a thread."""

    def __init__(self, utils: SyncWorkerUtils) -> None:
        self._utils = utils

    def __getattr__(self, name: str) -> Any:
        if not hasattr(SyncWorkerUtils, name) and name not in ("hooks", "schema"):
            pytest.skip(f"about {name} of the asynchronous client")
        found = getattr(self._utils, name)
        if not callable(found):
            return found

        async def call(*arguments: Any, **keywords: Any) -> Any:
            if is_connection(keywords.get("connection")):
                pytest.skip("about connections of asyncpg")
            return await asyncio.to_thread(found, *arguments, **keywords)

        return call


@pytest.fixture
async def utils(database_url: str) -> AsyncIterator[InThreads]:
    with make_sync_worker_utils(connection_string=database_url) as utils:
        yield InThreads(utils)
