"""Runs single jobs with the worker's Executor: no database, no worker, no mode."""

from __future__ import annotations

import asyncio
from typing import Any

from graphile_worker.hooks import Hooks, Outcome
from graphile_worker.tasks import JobHelpers
from graphile_worker.tasks.helpers import current_helpers
from graphile_worker.tasks.registry import build_registry
from graphile_worker.tasks.services import QueueNames, WorkerServices
from graphile_worker.tasks.threads import TaskThreads
from graphile_worker.testing.jobs import make_job
from graphile_worker.values.job import Job
from graphile_worker.values.outcome import Failed
from graphile_worker.worker.run.execute import Executor, execute_around


class Absent:
    """Placeholder for a database that the test does not need; using it fails the test."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"this test has no database, so {name} cannot be used")

    def __call__(self, *args: Any) -> Any:
        raise AssertionError("this test has no database")


def services_without_database(**values: Any) -> WorkerServices:
    """What tasks of a worker share; `values` replace the placeholders."""
    absent = Absent()
    placeholders: dict[str, Any] = {
        "client": absent,
        "acquire": absent,
        "queue_names": QueueNames(absent),
        "loop": asyncio.get_running_loop(),
    }
    return WorkerServices(**(placeholders | values))


class Attempts:
    """Runs jobs one by one as a slot does, and returns what it would hand on to be written."""

    def __init__(self, task_list: Any, hooks: Hooks | None = None, **options: Any) -> None:
        self._threads = TaskThreads(2)
        self.executor = Executor(
            build_registry(task_list),
            services_without_database(),
            self._threads,
            hooks or Hooks(),
            **options,
        )
        self._number = 0

    async def __call__(self, identifier: str, payload: Any = None, **values: Any) -> Outcome:
        """The outcome of one job; `payload` is {} unless given, as in the database."""
        self._number += 1
        job = make_job(identifier, {} if payload is None else payload, id=self._number, **values)
        return await self.run(job)

    async def run(self, job: Job) -> Outcome:
        helpers = JobHelpers(job, self.executor.services, "worker-1")
        token = current_helpers.set(helpers)
        try:
            if self.executor.around_run:
                return await execute_around(self.executor, job, helpers)
            return await self.executor.execute(job, helpers)
        finally:
            current_helpers.reset(token)

    def __enter__(self) -> Attempts:
        return self

    def __exit__(self, *error: object) -> None:
        self._threads.close()

    def interrupt(self, running: asyncio.Task[Any], reason: str) -> None:
        """As a worker does that stops and has waited long enough."""
        self.executor.interruption = reason
        running.cancel()


def headline_of(outcome: Outcome) -> str:
    """The first line of the message of a failed attempt."""
    assert isinstance(outcome, Failed), outcome
    return outcome.message.split("\n")[0]
