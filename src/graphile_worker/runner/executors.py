"""The executors of one run: made from the settings and from objects of the program, started and closed."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from ..errors import ConfigError
from ..executors.call import TaskExecutor, bind_tasks, tasks_of_executors
from ..executors.process import ProcessExecutor, processor_count
from ..hooks.hooks import Carrier
from ..recovery.registry.pool_state import ExecutorPlace
from ..tasks.task import AnyTask
from ..values.option_groups import KINDS, PROCESS, settings_by_name

MOST_PLACES = 200
"""Processes and machines that a worker reports."""

logger = logging.getLogger("graphile_worker.executors")


class RunExecutors:
    """Those executors that tasks of this worker use."""

    def __init__(
        self,
        tasks: Mapping[str, AnyTask],
        objects: Mapping[str, TaskExecutor],
        settings: Mapping[str, Any],
        *,
        concurrency: int,
    ) -> None:
        """Raises TaskLoadError if a task wants an executor that does not exist, or cannot run in it."""
        by_name = settings_by_name(settings)
        self._tasks = tasks_of_executors(tasks, {PROCESS: None, **objects, **by_name})
        self.used: dict[str, TaskExecutor] = {
            name: objects[name] if name in objects else _made(name, by_name.get(name, {}), concurrency)
            for name in self._tasks
        }
        self._sized = [
            executor
            for name, executor in self.used.items()
            if isinstance(executor, ProcessExecutor)
            and name not in objects
            and "processes" not in by_name.get(name, {})
        ]
        self._started: list[TaskExecutor] = []

    def resize(self, concurrency: int) -> None:
        """Follow the number of slots where the settings name no number of processes."""
        for executor in self._sized:
            executor.resize(min(concurrency, processor_count()))

    async def start(self) -> None:
        """Start them; if one fails, `close` closes the others."""
        for name, executor in self.used.items():
            self._started.append(executor)
            await executor.start(self._tasks[name])

    def bound(self, tasks: Mapping[str, AnyTask], carriers: Sequence[Carrier]) -> dict[str, AnyTask]:
        """The tasks as the pool calls them."""
        return bind_tasks(tasks, self.used, carriers=carriers)

    def places(self) -> list[ExecutorPlace]:
        """The processes and machines that run tasks. May be called from any thread."""
        return [
            place
            for name, executor in self.used.items()
            if (places := getattr(executor, "places", None)) is not None
            for place in places(name)
        ][:MOST_PLACES]

    async def close(self) -> None:
        """Close those that were started."""
        started, self._started = self._started, []
        for result in await asyncio.gather(*(each.close() for each in started), return_exceptions=True):
            if isinstance(result, BaseException):
                logger.error("an executor could not be closed", exc_info=result)


def _made(name: str, settings: Mapping[str, Any], concurrency: int) -> TaskExecutor:
    """The executor that the settings describe."""
    values = dict(settings)
    kind = values.pop("kind", name)
    if kind == PROCESS:
        values.setdefault("processes", min(concurrency, processor_count()))
        return _call(name, ProcessExecutor, values)
    place, _, attribute = KINDS.get(kind, str(kind)).partition(":")
    if not attribute:
        raise ConfigError(
            f"executors: {name}: kind: expected one of {', '.join(KINDS)}, or package.module:Class; "
            f"got {kind!r}"
        )
    try:
        made = getattr(import_module(place), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"executors: {name}: {error}") from error
    return _call(name, made, values)


def _call(name: str, made: Any, values: Mapping[str, Any]) -> TaskExecutor:
    known = inspect.signature(made).parameters
    for setting in values:
        if setting not in known:
            raise ConfigError(
                f"executors: {name} has no setting {setting!r}; known settings: {', '.join(known)}"
            )
    try:
        executor: TaskExecutor = made(**values)
    except (ConfigError, TypeError) as error:
        raise ConfigError(f"executors: {name}: {error}") from error
    return executor
