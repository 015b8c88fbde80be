"""Which tasks of a worker share slots. Pure.

A pool has a main lane for all tasks that are in no other lane, and further lanes. Each lane has slots and
fetches of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ..errors import ConfigError
from ..lane import MAIN, Lane, Order
from ..tasks.task import AnyTask

MANY_LANES = 10  # each lane makes a fetch of its own for each announced job

logger = logging.getLogger("graphile_worker.worker")


class LanePlan(msgspec.Struct, frozen=True, kw_only=True):
    """One lane of a pool."""

    name: str
    tasks: tuple[str, ...]
    """Identifiers."""
    concurrency: int
    """The number of slots."""
    order: Order = "priority"

    @property
    def is_main(self) -> bool:
        """Whether this is the lane of all tasks that are in no other."""
        return self.name == MAIN


def plan_lanes(tasks: Mapping[str, AnyTask], lanes: Sequence[Lane], concurrency: int) -> list[LanePlan]:
    """The lanes of a pool with these tasks, the main lane first.

    A lane without tasks is left out. ConfigError if a task is in a lane that does not exist, or in two.
    """
    if not lanes and not any(task._lane for task in tasks.values()):
        return [LanePlan(name=MAIN, tasks=tuple(tasks), concurrency=concurrency)]
    members = _members(tasks, lanes)
    slots = {MAIN: concurrency} | {lane.name: lane.concurrency for lane in lanes}
    orders = {lane.name: lane.order for lane in lanes}
    for lane in lanes:
        if not members[lane.name]:
            logger.warning("the lane %r has no tasks in this worker", lane.name)
    plans = [
        LanePlan(name=name, tasks=tuple(found), concurrency=slots[name], order=orders.get(name, "priority"))
        for name, found in members.items()
        if found
    ]
    if len(plans) > MANY_LANES:
        logger.warning(
            "the worker has %d lanes, and each of them fetches when a job is added; more than %d cost the "
            "database noticeable work",
            len(plans),
            MANY_LANES,
        )
    return plans or [LanePlan(name=MAIN, tasks=(), concurrency=concurrency)]


def _members(tasks: Mapping[str, AnyTask], lanes: Sequence[Lane]) -> dict[str, list[str]]:
    """Identifiers of the tasks in each lane."""
    chosen = _chosen_by_lanes(tasks, lanes)
    members: dict[str, list[str]] = {name: [] for name in (MAIN, *(lane.name for lane in lanes))}
    for identifier, task in tasks.items():
        own, given = task._lane, chosen.get(identifier)
        if own is not None and given is not None and own != given:
            raise ConfigError(
                f"the task {identifier!r} is in two lanes: {own!r}, by its @task, and {given!r}"
            )
        name = given or own or MAIN
        if name not in members:
            raise ConfigError(
                f"the task {identifier!r} is in the lane {name!r}, which this worker does not have; declare "
                f'it with lanes=[Lane("{name}", concurrency=1)], with --lane {name}=1, or in the table lanes '
                "of the configuration file"
            )
        members[name].append(identifier)
    return members


def _chosen_by_lanes(tasks: Mapping[str, AnyTask], lanes: Iterable[Lane]) -> dict[str, str]:
    """Identifiers that `Lane(tasks=…)` names, and the name of the lane."""
    chosen: dict[str, str] = {}
    for lane in lanes:
        for thing in lane.tasks:
            identifier = _identifier(thing, tasks)
            if identifier is None:
                raise ConfigError(
                    f"lane {lane.name!r}: the worker has no task {_shown(thing)}; "
                    f"its tasks: {', '.join(tasks)}"
                )
            if chosen.setdefault(identifier, lane.name) != lane.name:
                raise ConfigError(
                    f"the task {identifier!r} is in two lanes: {chosen[identifier]!r} and {lane.name!r}"
                )
    return chosen


def _identifier(thing: Any, tasks: Mapping[str, AnyTask]) -> str | None:
    """The identifier of a task of the worker, from its identifier, the task or its function."""
    if isinstance(thing, str):
        return thing if thing in tasks else None
    function = getattr(thing, "function", thing)
    for identifier, task in tasks.items():
        if task is thing or task.function == function:
            return identifier
    return None


def _shown(thing: Any) -> str:
    return repr(thing if isinstance(thing, str) else getattr(thing, "identifier", None) or thing)
