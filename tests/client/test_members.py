"""The client can be surveyed: few methods on each class, and members by subject that cost nothing unused."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from importlib import import_module
from types import FunctionType

import pytest
from scripts.reference.api_page import MEMBERS

from docs.blocks import ROOT
from graphile_worker import App, JobHelpers, Runner, SyncWorkerUtils, WorkerUtils
from graphile_worker.errors import InvalidArgumentError
from support.cases import Cases, looped

MOST = 20
OWN = {
    "add_job", "add_jobs", "migrate", "release", "with_pg_client", "bound", "wait_for", "remove_job",
    "complete_jobs", "permanently_fail_jobs", "reschedule_jobs", "cancel_jobs", "force_unlock_workers",
    "cleanup", "list_workers", "sweep_stale_workers", "pause", "resume", "set_limit",
}  # fmt: skip
BY_SUBJECT = {
    "jobs": {
        "get", "list", "get_status", "get_record", "get_stack", "wait_for", "watch", "handle", "cancel",
        "retry",
    },
    "queues": {"list", "pause", "resume", "set_concurrency", "list_pauses"},
    "workers": {"list", "pause", "resume", "stop", "sweep", "recover", "list_deploys", "set_concurrency"},
    "limits": {"list", "set", "reset"},
    "schedules": {"list", "pause", "resume", "run_now"},
    "history": {"list_finished", "of_job", "errors_of_job", "list_errors", "list_error_groups"},
    "statistics": {"jobs", "tasks", "samples"},
}  # fmt: skip


def methods_of(cls: type) -> set[str]:
    return {
        name
        for name in dir(cls)
        if not name.startswith("_")
        and isinstance(inspect.getattr_static(cls, name), FunctionType | classmethod | staticmethod)
    }


def member_class(name: str, *, is_sync: bool = False) -> type:
    module = import_module(f"graphile_worker.client.members.{name}")
    found: type = getattr(module, f"{'Sync' if is_sync else ''}{name.capitalize()}Client")
    return found


def test_the_client_has_these_methods() -> None:
    assert methods_of(WorkerUtils) == methods_of(SyncWorkerUtils) == OWN


def test_its_members_have_these_methods() -> None:
    assert set(MEMBERS) == set(BY_SUBJECT)
    for name, methods in BY_SUBJECT.items():
        assert methods_of(member_class(name)) == methods_of(member_class(name, is_sync=True)) == methods


@looped(
    "cls",
    [
        WorkerUtils,
        SyncWorkerUtils,
        JobHelpers,
        Runner,
        App,
        *(member_class(name, is_sync=is_sync) for name in MEMBERS for is_sync in (False, True)),
    ],
)
def test_no_class_has_too_many_methods(cls: type) -> None:
    assert len(methods_of(cls)) <= MOST
    assert inspect.getdoc(cls)


ADDING = """
import asyncio, sys
from graphile_worker import make_sync_worker_utils, make_worker_utils

async def add() -> None:
    async with make_worker_utils(connection_string=sys.argv[1]) as utils:
        await utils.add_job("one")
        kinds = [type(each).__module__ for each in vars(utils).values()]
        assert not [name for name in kinds if "members" in name]

asyncio.run(add())
with make_sync_worker_utils(connection_string=sys.argv[1]) as utils:
    utils.add_job("two")
print([name for name in sys.modules if name.startswith("graphile_worker.client.") and "members" in name])
"""


def test_a_program_that_only_adds_jobs_does_not_import_them(database_url: str) -> None:
    command = [sys.executable, "-c", ADDING, database_url]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "[]\n"


async def test_a_pause_is_of_one_thing(utils: WorkerUtils) -> None:
    with Cases() as cases:
        for arguments, got in (
            ({}, "none of them"),
            ({"queue_name": "q", "task": "t"}, "queue_name and task"),
            ({"queue_name": "q", "all": True}, "queue_name and all"),
            ({"task": "t", "all": True}, "task and all"),
        ):
            for method in (utils.pause, utils.resume):
                problem = f"give one of queue_name, task and all=True; got {got}"
                with cases(method.__name__, arguments), pytest.raises(InvalidArgumentError, match=problem):
                    await method(**arguments)


async def test_a_queue_a_task_and_all_are_paused_and_resumed(utils: WorkerUtils) -> None:
    assert (await utils.pause(queue_name="q", reason="why")).queue_name == "q"
    assert (await utils.pause(task="t")).task_identifier == "t"
    await utils.pause(all=True)
    paused = await utils.queues.list_pauses()
    assert [pause.what for pause in paused] == ["every task", "task t", "queue q"]
    assert await utils.resume(all=True)
    assert await utils.resume(task="t")
    assert await utils.resume(queue_name="q")
    assert not await utils.resume(queue_name="q")
    assert await utils.queues.list_pauses() == []


async def test_what_is_short_for_a_member_does_the_same(utils: WorkerUtils) -> None:
    assert await utils.list_workers() == await utils.workers.list()
    assert await utils.sweep_stale_workers(dry_run=True) == await utils.workers.sweep(dry_run=True)


def test_the_guide_lists_them() -> None:
    text = (ROOT / "docs" / "administration.md").read_text()
    rows = dict(re.findall(r"^\| `utils\.(\w+)` \| (.*) \|$", text, re.MULTILINE))
    assert {name: set(re.findall(r"`(\w+)`", row)) for name, row in rows.items()} == BY_SUBJECT
