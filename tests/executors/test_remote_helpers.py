"""What tasks in an executor get as helpers. Pure."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from graphile_worker.errors import JobError
from graphile_worker.executors.run_call import RemoteHelpers, remote_services
from support.finished import a_job

Call = Callable[[RemoteHelpers], Coroutine[Any, Any, Any]]
CALLS: dict[str, Call] = {
    "add_job": lambda helpers: helpers.add_job("note", {}),
    "add_jobs": lambda helpers: helpers.add_jobs([]),
    "wait_for": lambda helpers: helpers.wait_for(1),
    "get_queue_name": lambda helpers: helpers.get_queue_name(1),
    "query": lambda helpers: helpers.query("select 1"),
}


def helpers() -> RemoteHelpers:
    services = remote_services(progress=lambda job_id, report: None, logger=logging.getLogger("test"))
    return RemoteHelpers(a_job(), services, "worker")


@pytest.mark.parametrize("name", CALLS)
async def test_what_needs_the_worker_says_so_by_its_own_name(name: str) -> None:
    with pytest.raises(JobError, match=rf"^helpers\.{name}.* needs the database connections of the worker"):
        await CALLS[name](helpers())


def test_tools_may_look_at_the_helpers() -> None:
    """Such as one that shows the variables of a traceback."""
    client: Any = helpers()._services.client
    assert not hasattr(client, "__rich_repr__")
