"""Tests of the asynchronous client, run with the blocking one in its place.

Its methods are made of those of the other client, so one test for each kind of argument and result is
enough. Those on connections of asyncpg are skipped; `tests/foreign` has them for others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from inspect import signature
from typing import Any

import pytest
from scripts.reference.api_page import MEMBERS

from client.conftest import selection  # noqa: F401
from client.test_add_job import (  # noqa: F401
    test_a_task_object_gives_identifier_and_options,
    test_a_timedelta_counts_from_the_clock_of_the_server,
    test_every_option_reaches_the_database,
    test_the_three_job_key_modes,
)
from client.test_add_jobs import (  # noqa: F401
    test_a_late_mistake_undoes_the_whole_call,
    test_rows_come_back_in_order_with_the_right_task_names,
    test_what_is_not_a_spec_is_refused,
)
from client.test_inspection import (  # noqa: F401
    states,
    test_get_job_returns_queue_state_and_payload,
    test_list_jobs_filters_by_state_task_queue_key_and_holder,
    test_list_queues_returns_size_and_holder,
    test_statistics_count_by_state_and_task,
)
from client.test_manage_jobs import *  # noqa: F403
from graphile_worker import SyncWorkerUtils, make_sync_worker_utils
from graphile_worker.database.connections.single import is_connection

for _test in [name for name in globals() if name.startswith("test_")]:
    if "utils" not in signature(globals()[_test]).parameters:
        del globals()[_test]


class InThreads:
    """The blocking client, or a member of it, with methods to await: each call has a thread."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        if not hasattr(self._client, name):
            pytest.skip(f"about {name} of the asynchronous client")
        found = getattr(self._client, name)
        if name in MEMBERS and isinstance(self._client, SyncWorkerUtils):
            return InThreads(found)
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
