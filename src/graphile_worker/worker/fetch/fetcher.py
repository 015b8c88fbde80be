"""Fetcher: locks jobs for one pool and returns those that were not run. Every source uses one."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from ...database.connections.connection import Connection
from ...database.connections.errors import explained
from ...database.statements.control import EVERY_TASK
from ...database.statements.fetch import (
    get_announced_jobs,
    get_jobs,
    get_plain_jobs,
    get_urgent_jobs,
    get_wide_jobs,
    in_run_order,
    list_priorities,
    may_queues_be_next,
    register_tasks,
)
from ...database.statements.held_batches import Place, get_keyed_jobs
from ...database.statements.write import return_jobs
from ...database.statements.write_plan import Continuation
from ...hooks.events import PoolJobsFetched
from ...hooks.faults import report
from ...hooks.interceptors import call
from ...values.flags import NO_RULES, FlagRules, FlagSources, flag_rules
from ...values.job import Job
from ..context import FailureLog, PoolContext
from ..held.batches import HeldBatches, LimitsOfBatches
from ..session import Session, Statement
from .plan import (
    ANNOUNCED,
    HELD,
    PLAIN,
    SERIES,
    URGENT,
    WHOLE,
    WIDE,
    Demand,
    Fetch,
    FetchPlan,
    Kind,
    ListPriorities,
    Question,
)
from .wide_queues import WideQueues

LARGE_FETCH = 100  # jobs
READ_IDS_EVERY = 1.0  # seconds at least between two looks whether announced jobs have a new task id

logger = logging.getLogger("graphile_worker.worker")

FETCHES: dict[Kind, Callable[..., Awaitable[Sequence[Job]]]] = {
    ANNOUNCED: get_announced_jobs,
    PLAIN: get_plain_jobs,
    URGENT: get_urgent_jobs,
    WHOLE: get_jobs,
    WIDE: get_wide_jobs,
}

NO_SOURCES = FlagSources()

_by_id = attrgetter("id")


def may_have_left_some(found: int, limit: int) -> bool:
    """Whether more jobs may be ready: a large fetch may stop at a quarter of its limit (`parts/queued`)."""
    return found >= (limit if limit < LARGE_FETCH else limit // 4)


class Fetcher:
    """Sends the statements that a `FetchPlan` chooses."""

    may_prefetch: bool = True
    """Whether jobs may be locked before a slot is free."""
    may_continue_queues: bool = True
    """Whether a write may lock the next job of a named queue in place of a fetch."""
    may_overtake: bool = True
    """Whether a fetch may be limited to jobs of better priorities than those that are prefetched."""

    def __init__(
        self,
        context: PoolContext,
        session: Session,
        identifiers: Sequence[str],
        *,
        flags: FlagSources = NO_SOURCES,
        has_queue_indexes: bool = True,
        is_limited: bool = False,
        failures: FailureLog | None = None,
        held_batches: HeldBatches | None = None,
        wide_queues: WideQueues | None = None,
    ) -> None:
        """`identifiers`: those of the tasks whose jobs it fetches.

        `wide_queues`: notices jobs of named queues that may run several at once; None if there are none.
        """
        self.held_batches = held_batches
        """Runs jobs inside the transaction that fetches them; None if that is off."""
        self._wide_queues = wide_queues
        self.pool_id = context.pool_id
        self._session = session
        self._schema = context.schema
        self._events = context.events
        self._now = context.now
        self._identifiers = identifiers
        self._flags = flags
        self._rules = NO_RULES if flags.changing else flag_rules(flags.by_option())  # as of the last fetch
        self._have_flags_failed = False
        self._registered: dict[int, str] = {}
        self._tasks: dict[int, str] = {}  # the registered ones that are not paused
        self._paused: frozenset[str] = frozenset()
        self._ids_read_at = -READ_IDS_EVERY  # by the monotonic clock
        self._may_ids_be_old = False  # whether a job was announced and not found since
        self._failures = failures
        self._plan = FetchPlan(
            has_queue_indexes=has_queue_indexes,
            is_limited=is_limited,
            poll_interval=context.options.poll_interval,
        )
        self._fetches = FETCHES
        self._last_kind: Kind = PLAIN
        self._may_be_more = True  # after a held fetch
        self.followed = 0
        """How many jobs follow those of the last fetch, one after the other in their queues."""
        self._has_dropped = False  # whether the last fetch found jobs that run here already
        self.one_at_a_time = bool(flags.changing)
        """Whether the rules for flags may change from job to job, so that no job may be prefetched."""

    # -- tasks ---------------------------------------------------------------------------------------------

    async def register(self) -> None:
        """Read the ids of the tasks; they change if a row is deleted and added again."""
        await self._read_ids()

    async def _read_ids(self) -> None:
        identifiers = self._identifiers
        self._may_ids_be_old, self._ids_read_at = False, time.monotonic()
        tasks = await self._session.run(
            lambda connection: register_tasks(connection, self._schema, identifiers)
        )
        self.registered({name: task_id for task_id, name in tasks.items()}, identifiers)

    @property
    def tasks(self) -> Mapping[int, str]:
        """Ids and identifiers of the tasks that may run."""
        return self._tasks

    @property
    def identifiers(self) -> Sequence[str]:
        """Those of its tasks, registered or not."""
        return self._identifiers

    def registered(self, ids: Mapping[str, int], identifiers: Sequence[str]) -> None:
        """Take the ids of these tasks, which were its own when they were read; no news if it has others."""
        if identifiers is self._identifiers:
            self._registered = {ids[name]: name for name in identifiers if name in ids}
            self._tasks = self._unpaused()

    async def _are_ids_new(self, *, announced: bool) -> bool:
        """After a fetch without jobs: whether tasks have other ids than those that were asked for.

        A clean-up, for example by Node, deletes the rows of tasks without jobs, and the next job of such a
        task brings a row with another id. If a job was announced and none was found, that may be why.
        """
        self._may_ids_be_old = self._may_ids_be_old or announced
        if not self._may_ids_be_old or time.monotonic() < self._ids_read_at + READ_IDS_EVERY:
            return False
        before = self._tasks
        await self._read_ids()
        if self._tasks.keys() == before.keys():
            return False
        self._plan.forget_watermarks()
        return True

    def set_tasks(self, identifiers: Sequence[str]) -> None:
        """Fetch jobs of these tasks from now on; a fetch in flight may still lock jobs of the old ones."""
        self._identifiers = tuple(identifiers)
        self._registered = self._tasks = {}

    def pause(self, identifiers: frozenset[str]) -> None:
        """Fetch no jobs of these tasks from now on, and of all others; `EVERY_TASK` stands for every one."""
        self._paused = identifiers
        self._tasks = self._unpaused()
        self._plan.forget_watermarks()

    def _unpaused(self) -> dict[int, str]:
        if not self._paused:
            return self._registered
        if EVERY_TASK in self._paused:
            return {}
        return {id_: name for id_, name in self._registered.items() if name not in self._paused}

    def forget(self) -> None:
        """Forget everything about the schema: it may have been dropped and installed again."""
        self._registered = self._tasks = {}
        self._plan.forget()

    # -- fetching ------------------------------------------------------------------------------------------

    async def fetch(
        self, limit: int, *, announced: bool = False, may_hold: bool = False, up_to: int | None = None
    ) -> Sequence[Job]:
        """Lock up to `limit` jobs; `announced` if a notification said that there is one.

        `may_hold`: whether they may run inside the transaction that fetches them.
        `up_to`: only jobs of this priority or a better one.
        """
        try:
            if not self._tasks:
                if not self._registered and self._identifiers:
                    await self.register()
                if not self._tasks:  # this lane has none, or all are paused
                    return ()
            if self.one_at_a_time:
                self._rules = await self._read_rules()
            demand = Demand(
                limit, self._tasks, announced, may_hold, self.one_at_a_time, self._rules, self._now(), up_to
            )
            jobs = await self._fetch(demand)
            if not jobs and await self._are_ids_new(announced=announced):
                jobs = await self._fetch(replace(demand, tasks=self._tasks))
        except Exception as error:
            if self._failures is not None:
                self._failures.failed(error)
            raise
        if self._failures is not None:
            self._failures.succeeded()
        return jobs

    async def _fetch(self, demand: Demand) -> Sequence[Job]:
        """Carry out the plan; it decides whether it can do without a statement that failed."""
        # The plan needs the real time that the server takes, even if the clock is a fake one.
        began = ended = time.monotonic()
        self._plan.is_wide, self._plan.round_trip = self.is_wide, self._session.round_trip
        steps = self._plan.fetch(demand, began)
        step = next(steps)
        self._has_dropped, self.followed = False, 0
        locked: Sequence[Job] | None = None
        try:
            while True:
                try:
                    if isinstance(step, Fetch):
                        fetch = step
                        answer: Any = await self._answer(step, demand)
                        locked = answer
                    else:
                        answer = await self._session.run(self._question(step, demand))
                except Exception as error:
                    step = steps.throw(error)
                else:
                    ended = time.monotonic()
                    step = steps.send((answer, ended))
        except StopIteration as end:
            jobs: Sequence[Job] = end.value
        except BaseException:
            if locked:  # cancelled by a question about a slow fetch
                self._give_up(locked)
            raise
        self._last_kind = fetch.kind
        if jobs and self._wide_queues is not None and fetch.kind in (WHOLE, WIDE, URGENT, SERIES):
            self._wide_queues.notice(jobs)
        if PoolJobsFetched in self._events.observed:
            self._emit(fetch, len(jobs) + self.followed, ended - began)
        return jobs

    def _question(self, step: ListPriorities | Question, demand: Demand) -> Statement[Any]:
        terms: dict[str, Any]
        terms = {"schema": self._schema, "tasks": demand.tasks, "flags": demand.flags, "now": demand.now}
        if isinstance(step, ListPriorities):
            return partial(list_priorities, limit=step.limit, **terms)
        return partial(may_queues_be_next, **terms)

    async def _answer(self, fetch: Fetch, demand: Demand) -> Sequence[Job] | None:
        """The jobs that a statement has locked; None if it was not sent."""
        terms: dict[str, Any] = {
            "tasks": demand.tasks,
            "limit": fetch.limit,
            "flags": demand.flags,
            "now": demand.now,
            "ranges": fetch.ranges,
        }
        self._plan.has_left_some = False
        if fetch.kind is HELD:
            return await self._hold(terms)
        if fetch.kind is SERIES:
            return await self._series(terms)
        statement = partial(self._fetches[fetch.kind], schema=self._schema, pool_id=self.pool_id, **terms)
        found = await self._session.run_under_lease(statement)
        if self.held_batches is None or not found:
            return found
        if demand.may_hold and any(job.key is not None for job in found):
            self.held_batches.hold_less()  # a batch would have had to end before these
        jobs = self.held_batches.exclude_running(found)
        self._has_dropped = len(jobs) < len(found)
        return jobs

    async def _hold(
        self, terms: dict[str, Any], limits: LimitsOfBatches | None = None
    ) -> Sequence[Job] | None:
        """The jobs of a held batch; None if there is none."""
        if self.held_batches is None:
            return None
        held = await self.held_batches.fetch(**terms, limits=limits)
        # Before another lane changes it.
        self._may_be_more = self._plan.has_left_some = self.held_batches.may_be_more
        passed = self.held_batches.passed_keyed
        return held if passed is None or held is None else await self._with_keyed(held, passed, terms)

    async def _series(self, terms: dict[str, Any]) -> Sequence[Job] | None:
        """The first held job of each queue; None if nothing was fetched."""
        if self.held_batches is None:
            return None
        del terms["ranges"]
        jobs = await self.held_batches.fetch_series(**terms)
        if jobs:
            self.followed = self.held_batches.followed
            self._may_be_more = self._plan.has_left_some = self.held_batches.may_be_more
        return jobs

    async def _with_keyed(self, held: Sequence[Job], passed: Place, terms: dict[str, Any]) -> Sequence[Job]:
        """The jobs of a held batch and those with a key that come between them, which are locked."""
        if not self._session.lease.is_open:
            return held  # they must not wait for it
        del terms["ranges"]
        statement = partial(get_keyed_jobs, schema=self._schema, pool_id=self.pool_id, up_to=passed, **terms)
        try:
            keyed = await self._session.run_under_lease(statement)
        except Exception as error:  # the next fetch finds them, and those of the batch must run
            logger.debug("could not lock jobs with a key for a held batch: %s", explained(error))
            return held
        except BaseException:
            self._give_up(held)
            raise
        if self.held_batches is not None:
            keyed = self.held_batches.exclude_running(keyed)
        return in_run_order(sorted([*held, *keyed], key=_by_id)) if keyed else held

    def _emit(self, fetch: Fetch, count: int, seconds: float) -> None:
        event = PoolJobsFetched(
            pool_id=self.pool_id,
            count=count,
            limit=fetch.limit,
            seconds=seconds,
            kind=HELD if fetch.kind is SERIES else fetch.kind,
        )
        self._events.emit(event)

    async def _read_rules(self) -> FlagRules:
        """The rules for flags now."""
        lists = self._flags.by_option()
        for name in self._flags.changing:
            try:
                lists[name] = await call(lists[name])  # type: ignore[arg-type]
            except Exception as error:
                if not self._have_flags_failed:  # once until it works again; the failed fetch is logged, too
                    self._have_flags_failed = True
                    report(logger, f"the function of {name} failed", error=error)
                raise
        self._have_flags_failed = False
        return flag_rules(lists)

    def may_have_left_some(self, found: int, limit: int) -> bool:
        """Whether another fetch may find more jobs now."""
        if self._last_kind in (HELD, SERIES):
            return self._may_be_more
        return self._has_dropped or may_have_left_some(found, limit)

    def full_fetch_in(self) -> float | None:
        """Seconds until a full fetch may find an announced job that was not found; None if there is none."""
        now = time.monotonic()
        wait = self._plan.full_fetch_in(now)
        if not self._may_ids_be_old:
            return wait
        until_read = max(0.0, self._ids_read_at + READ_IDS_EVERY - now)
        return until_read if wait is None else min(wait, until_read)

    def forget_watermarks(self) -> None:
        """Make the next fetch a full one, whatever it costs."""
        self._plan.forget_watermarks()

    def jobs_freed(self) -> None:
        """Look everywhere soon: jobs were returned, unlocked or rescheduled."""
        self._plan.jobs_freed()

    # -- jobs that were not run, and queues ----------------------------------------------------------------

    def release(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Let go of held jobs that were not started; returns the others, which must be unlocked."""
        return jobs if self.held_batches is None else self.held_batches.release(jobs)

    async def return_jobs(self, jobs: Sequence[Job]) -> None:
        """Unlock jobs that were not started; may be repeated.

        An attempt without an answer may have unlocked them, and a fetch locked them again: those stay locked.
        """
        locked_jobs = self._session.locked_jobs

        async def statement(connection: Connection) -> None:
            own = [job for job in jobs if locked_jobs.jobs.get(job.id) is job]
            await return_jobs(connection, self._schema, self.pool_id, own)

        await self._session.run(statement)
        locked_jobs.remove(jobs)
        self._plan.jobs_freed()

    def _give_up(self, jobs: Sequence[Job]) -> None:
        """Let go of locked jobs that no source will get, because the fetch was cancelled."""
        self.forget_jobs(self.release(jobs))
        self._plan.jobs_freed()

    def forget_jobs(self, jobs: Sequence[Job]) -> None:
        """Let the next statement return these jobs, because a task that was to do that has died."""
        self._session.locked_jobs.remove(jobs)
        self._session.locked_jobs.doubt()

    @property
    def is_wide(self) -> bool:
        """Whether to fetch as many jobs of a named queue as its concurrency allows."""
        return self._wide_queues is not None and self._wide_queues.is_wide

    def may_follow(self, continued: int) -> bool:
        """Whether a fetch may hold jobs of a queue, of which writes have locked so many one by one."""
        held_batches = self.held_batches
        return held_batches is not None and held_batches.may_follow(continued) and not self.is_wide

    @property
    def has_series(self) -> bool:
        """Whether jobs of named queues are held."""
        return self.held_batches is not None and self.held_batches.has_series

    @property
    def following(self) -> int:
        """How many held jobs follow those that the source has."""
        return 0 if self.held_batches is None else self.held_batches.following

    # -- limits --------------------------------------------------------------------------------------------

    @property
    def is_refused(self) -> bool:
        """Whether limits left less room than the last fetch wanted; see `LimitedFetcher`."""
        return False

    def made_room(self) -> bool:
        """Jobs of this lane have ended; whether a fetch must follow, because a limit counts them."""
        return False

    def continuation(self) -> Continuation | None:
        """What the next job of a freed queue must satisfy; None if a fetch must choose it."""
        if self.one_at_a_time or not self._tasks or not self.may_continue_queues:
            return None
        return Continuation(tasks=self._tasks, flags=self._rules, now=self._now(), is_wide=self.is_wide)
