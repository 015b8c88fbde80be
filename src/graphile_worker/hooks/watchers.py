"""Watchers of adds and of runs. Whatever they raise is logged; it never fails an add or a job.

Watchers of adds see the jobs of each add before they are sent, and the outcome. They are synchronous, so that
one watcher serves asynchronous and blocking clients alike.

Watchers of runs see each job before it runs and its outcome after that, in the context of the task. They are
synchronous, too, and enclose everything that belongs to the run: interceptors, the decoding of the payload
and the task.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextvars import Context, copy_context
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import ConfigError
from ..values.job import Job
from ..values.outcome import Outcome
from .faults import report

if TYPE_CHECKING:
    from ..values.spec import JobSpec

PART = 1000
"""Specs of a generator that are shown to watchers at once; all of them could be millions."""

logger = logging.getLogger("graphile_worker.hooks")


class AddWatcher(Protocol):
    """Watches jobs being added through a client or worker: `hooks.watch_adds(watcher)`."""

    def before(self, specs: Sequence[JobSpec]) -> tuple[Sequence[JobSpec], object]:
        """Called before an add is sent, after all `before_add` interceptors.

        It returns the specs to send in their place, often the same, and anything that `after` wants to get.
        One call of `add_jobs` is one call here, except that a generator is shown in parts of 1,000 specs.
        A recurring job is shown alone, as a `CronJob`. Context variables that are set here hold while the
        jobs are added; reset them in `after`.
        """
        ...

    def after(self, state: object, jobs: Sequence[Job] | None, error: BaseException | None) -> None:
        """Called when the add has ended. In a transaction of the caller, it is not yet committed.

        `jobs` are in the order of the specs. They are None after an error, with `return_jobs=False`, and for
        recurring jobs; empty if another worker was first to add the recurring job. `error` is also the
        refusal of an interceptor.
        """
        ...


def check_watcher(hook: str, watcher: object) -> None:
    """Reject what has not both methods."""
    if not all(callable(getattr(watcher, name, None)) for name in ("before", "after")):
        raise ConfigError(f"{hook}: expected an object with the methods before and after, got {watcher!r}")


class WatchedAdd:
    """One add, as all watchers see it."""

    __slots__ = ("_states", "specs")

    def __init__(self, watchers: Iterable[AddWatcher], specs: Sequence[JobSpec]) -> None:
        self.specs = specs
        """What to send."""
        self._states: list[tuple[AddWatcher, object]] = []
        for watcher in watchers:
            try:
                changed, state = watcher.before(self.specs)
                if len(changed) != len(specs):
                    raise ValueError(f"before() returned {len(changed)} specs for {len(specs)}")
            except BaseException as error:
                _log_failure(watcher, error)
                continue
            self.specs = changed
            self._states.append((watcher, state))

    def ended(self, jobs: Sequence[Job] | None, error: BaseException | None = None) -> None:
        """Tell the watchers, the last one first."""
        for watcher, state in reversed(self._states):
            try:
                watcher.after(state, jobs, error)
            except BaseException as failure:
                _log_failure(watcher, failure)


class WatchedAdds:
    """One call of `add_jobs`.

    Each part of a generator has a context of its own, so that watchers may set context variables for the
    length of the add.
    """

    def __init__(self, watchers: Sequence[AddWatcher], specs: Iterable[JobSpec]) -> None:
        self._watchers = watchers
        self._adds: list[tuple[WatchedAdd, Context | None]] = []
        self._unread: Iterator[JobSpec] | None = specs if isinstance(specs, Iterator) else None
        if self._unread is None and (all_specs := list(specs)):
            self._adds.append((WatchedAdd(watchers, all_specs), None))

    @property
    def to_send(self) -> Iterable[JobSpec]:
        """The specs to send; they can be read again if those of the caller can."""
        if self._unread is None:
            return [spec for add, _ in self._adds for spec in add.specs]
        return self._read(self._unread)

    def _read(self, specs: Iterator[JobSpec]) -> Iterator[JobSpec]:
        while part := list(islice(specs, PART)):
            context = copy_context()
            add = context.run(WatchedAdd, self._watchers, part)
            self._adds.append((add, context))
            yield from add.specs

    def ended(self, jobs: Sequence[Job] | None, error: BaseException | None = None) -> None:
        """Tell the watchers; `jobs` are in the order of the specs."""
        first = 0
        for add, context in self._adds:
            count = len(add.specs)
            theirs = None if jobs is None else jobs[first : first + count]
            first += count
            if context is None:
                add.ended(theirs, error)
            else:
                context.run(add.ended, theirs, error)


def _log_failure(watcher: Any, error: BaseException) -> None:
    report(logger, "a watcher of adds failed: %s", type(watcher).__qualname__, error=error)


class RunWatcher(Protocol):
    """Watches jobs being run: `hooks.watch_runs(watcher)`. Both methods are plain functions."""

    def before(self, job: Job) -> object:
        """Called before anything else is done for the job; returns what `after` wants to get.

        Interceptors and the task see context variables that are set here. Reset them in `after`: a slot with
        a changed context is replaced, which costs time.
        """
        ...

    def after(self, state: object, job: Job, outcome: Outcome | None) -> None:
        """Called with the outcome, before it is written; None if the run was broken off without one."""
        ...
