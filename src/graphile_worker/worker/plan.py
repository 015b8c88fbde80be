"""PoolPlan: what a pool is built from. Its lanes say which tasks of a worker share slots. Pure.

A pool has a main lane for all tasks that are in no other lane, and further lanes. Each lane has slots and
fetches of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ..errors import ConfigError
from ..tasks.task import AnyTask
from ..values.concurrency import FAIR, MAIN, Lane, Limit, Order, unique_limits
from ..values.flags import FlagSources
from ..values.options import WorkerOptions
from ..values.retention import RetentionPolicy

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
    limits: Mapping[Limit, Sequence[str]] = msgspec.field(default_factory=dict)
    """The limits of its tasks, each with the identifiers of all tasks that have it; by name."""

    @property
    def is_main(self) -> bool:
        """Whether this is the lane of all tasks that are in no other."""
        return self.name == MAIN


class PoolPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a pool is built from, beside its database and its hooks."""

    options: WorkerOptions
    tasks: Mapping[str, AnyTask]
    lanes: Sequence[LanePlan]
    """See `plan_lanes`; every task is in one of them."""
    flags: FlagSources = FlagSources()
    once: bool = False
    """Whether the pool ends when no job is ready."""
    reserved: int = 0
    """Connections of the database pool that are in use elsewhere while this pool is alive."""
    has_queue_indexes: bool = True
    has_held_limits: bool = True
    """Whether the function exists that lets held batches have limited jobs."""
    retention_policy: RetentionPolicy | None = None
    """Which finished jobs are kept; None if there is no history."""
    counts_statistics: bool = False
    has_control: bool = False
    """Whether the tables for pauses and cancelled jobs exist."""

    @property
    def concurrency(self) -> int:
        """The number of slots of all lanes."""
        return sum(lane.concurrency for lane in self.lanes)

    @property
    def may_hold(self) -> bool:
        """Whether a pool with these options and lanes ever holds batches."""
        options = self.options
        return (
            options.hold > 0
            and options.prefetch > 0
            and options.prepared_statements
            and options.local_queue is None
            and not self.flags.changing  # from job to job
            and any(self.may_hold_in(lane) for lane in self.lanes)
        )

    def may_hold_in(self, lane: LanePlan) -> bool:
        """Whether the jobs of a lane may run inside the transaction that fetches them."""
        return lane.order != FAIR and (self.has_held_limits or not lane.limits)

    @property
    def may_hold_series(self) -> bool:
        """Whether that may be jobs of named queues: with several lanes, those of a queue may be in others."""
        is_only_lane = len(self.lanes) == 1 and not self.lanes[0].limits
        return self.may_hold and is_only_lane and self.has_queue_indexes


def plan_lanes(tasks: Mapping[str, AnyTask], lanes: Sequence[Lane], concurrency: int) -> list[LanePlan]:
    """The lanes of a pool with these tasks, the main lane first.

    Tasks with limits are never in the main lane: those with the same limits share a lane, unless they name
    one. A lane without tasks is left out. ConfigError if a task is in a lane that does not exist, or in two.
    """
    if not lanes and not any(task.rules.lane or task.rules.limits for task in tasks.values()):
        return [LanePlan(name=MAIN, tasks=tuple(tasks), concurrency=concurrency)]
    members = _members(tasks, lanes)
    slots = {lane.name: lane.concurrency for lane in lanes}
    orders = {lane.name: lane.order for lane in lanes}
    for lane in lanes:
        if not members[lane.name]:
            logger.warning("the lane %r has no tasks in this worker", lane.name)
        elif lane.order == FAIR:
            _check_fair(lane.name, [tasks[name] for name in members[lane.name]])
    users = _users_of_limits(tasks)
    plans = [
        LanePlan(
            name=name,
            tasks=tuple(found),
            concurrency=slots.get(name, concurrency),
            order=orders.get(name, "priority"),
            limits={limit: users[limit] for limit in _limits_of_lane(name, [tasks[each] for each in found])},
        )
        for name, found in members.items()
        if found
    ]
    fetching = sum(not plan.limits for plan in plans)  # those with limits ask together
    if fetching > MANY_LANES:
        logger.warning(
            "the worker has %d lanes, and each of them fetches when a job is added; more than %d cost the "
            "database noticeable work",
            fetching,
            MANY_LANES,
        )
    return plans or [LanePlan(name=MAIN, tasks=(), concurrency=concurrency)]


def _members(tasks: Mapping[str, AnyTask], lanes: Sequence[Lane]) -> dict[str, list[str]]:
    """Identifiers of the tasks in each lane."""
    chosen = _chosen_by_lanes(tasks, lanes)
    members: dict[str, list[str]] = {name: [] for name in (MAIN, *(lane.name for lane in lanes))}
    for identifier, task in tasks.items():
        own, given = task.rules.lane, chosen.get(identifier)
        if own is not None and given is not None and own != given:
            raise ConfigError(
                f"the task {identifier!r} is in two lanes: {own!r}, by its @task, and {given!r}"
            )
        name = given or own or MAIN
        if name == MAIN and task.rules.limits:
            members.setdefault(_name_of_limited(task), []).append(identifier)
            continue
        if name not in members:
            raise ConfigError(
                f"the task {identifier!r} is in the lane {name!r}, which this worker does not have; declare "
                f'it with lanes=[Lane("{name}", concurrency=1)], with --lane {name}=1, or in the table lanes '
                "of the configuration file"
            )
        members[name].append(identifier)
    return members


def _name_of_limited(task: AnyTask) -> str:
    """The name of the lane of tasks that have these limits and name no lane."""
    names = " + ".join(limit.name for limit in task.rules.limits)
    return f"limits {names}" if len(task.rules.limits) > 1 else f"limit {names}"


def _limits_of_lane(name: str, tasks: Sequence[AnyTask]) -> tuple[Limit, ...]:
    """The limits that all tasks of a lane have: one fetch serves them all."""
    limits = tasks[0].rules.limits
    for task in tasks:
        if task.rules.limits != limits:
            raise ConfigError(
                f"the tasks {tasks[0].identifier!r} and {task.identifier!r} are in the lane {name!r} and "
                "have different limits; put them into different lanes"
            )
    return limits


def _check_fair(name: str, tasks: Sequence[AnyTask]) -> None:
    """A fair fetch keeps no limits."""
    for task in tasks:
        if task.rules.limits:
            raise ConfigError(
                f"the task {task.identifier!r} has a limit and cannot be in the fair lane {name!r}; remove "
                'the limit, or put the task into a lane without order="fair"'
            )


def _users_of_limits(tasks: Mapping[str, AnyTask]) -> dict[Limit, list[str]]:
    """Each limit, and the identifiers of the tasks that have it."""
    users: dict[Limit, list[str]] = {
        limit: [] for limit in unique_limits(limit for task in tasks.values() for limit in task.rules.limits)
    }
    for name, task in tasks.items():
        for limit in task.rules.limits:
            users[limit].append(name)
    return users


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


def check_limits(lanes: Iterable[LanePlan], *, has_limits: bool) -> None:
    """Refuse to run limited tasks without the objects in the database that keep the limits.

    With rules for flags other than forbidden ones, these are further objects.
    """
    limited = [task for lane in lanes if lane.limits for task in lane.tasks]
    if limited and not has_limits:
        raise ConfigError(
            f"the limits of {', '.join(limited)} cannot be kept, because the schema has no objects for "
            "limits and this role may not create them; let the owner of the schema run: "
            "graphile-worker migrate"
        )
