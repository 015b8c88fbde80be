"""What happened in a test: the result of `run_jobs`, and every event of a worker.

`JobsRun` has every attempt and how it ended. `EventRecorder` records every event of a worker, and waits for
the ones a test needs:

    recorder = EventRecorder()
    async with run(..., events=recorder.events):
        await recorder.wait_for(JobSucceeded, count=3)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from ..errors import UnknownTaskError
from ..errors.text import related
from ..hooks import Events, Hooks
from ..hooks.events import (
    Event,
    JobCancelled,
    JobCompleted,
    JobExpired,
    JobFailed,
    JobOutcomeDiscarded,
    JobSnoozed,
    JobStarted,
)
from ..values.job import Job
from ..values.outcome import Outcome
from ..values.text import count, did_you_mean


@dataclass(frozen=True, slots=True)
class JobRun:
    """One attempt of a job; `error` is the exception if it failed."""

    job: Job
    error: BaseException | None = None
    is_final: bool = False
    """Whether the job failed permanently."""
    is_snoozed: bool = False
    """Whether the task asked to run the job again later."""
    is_expired: bool = False
    """Whether the job had expired, so that the task was not called."""
    is_cancelled: bool = False
    """Whether the job was cancelled before its task completed."""

    def __repr__(self) -> str:
        how = "succeeded" if self.error is None else f"failed: {self.error!r}"
        if self.is_snoozed or self.is_expired:
            how = "was snoozed" if self.is_snoozed else "had expired"
        elif self.is_cancelled:
            how = "was cancelled"
        return f"<{_name(self.job)} {how}>"


@dataclass(frozen=True, slots=True)
class UnknownTask:
    """A task that ready jobs wait for, and that does not exist in the test's process."""

    identifier: str
    jobs: int
    """How many jobs wait for it, among the first 500 of each priority."""
    similar: list[str]
    """Names that may be meant."""

    def __str__(self) -> str:
        waiting = f"{count(self.jobs, 'job')} {'waits' if self.jobs == 1 else 'wait'}"
        return f"{waiting} for the unknown task {self.identifier!r}{did_you_mean(self.similar)}"

    def __repr__(self) -> str:
        return f"<{self}>"


class JobsRun(Sequence[JobRun]):
    """Attempts in the order in which they ended; false if there was none."""

    def __init__(self, runs: Iterable[JobRun] = (), unknown: Iterable[UnknownTask] = ()) -> None:
        self._runs = tuple(runs)
        self._unknown = tuple(unknown)

    @property
    def succeeded(self) -> list[Job]:
        """The jobs that completed, as they were when they were fetched."""
        return [
            run.job
            for run in self._runs
            if run.error is None and not (run.is_snoozed or run.is_expired or run.is_cancelled)
        ]

    @property
    def snoozed(self) -> list[Job]:
        """The jobs whose tasks asked to run them again later."""
        return [run.job for run in self._runs if run.is_snoozed]

    @property
    def failed(self) -> list[JobRun]:
        """The failed attempts, with their errors."""
        return [run for run in self._runs if run.error is not None]

    @property
    def unknown(self) -> list[UnknownTask]:
        """Tasks that ready jobs wait for, and that neither the run nor any `@task` of the process has."""
        return list(self._unknown)

    def of(self, task: Any) -> JobsRun:
        """The attempts of one task, given as the task or its identifier."""
        identifier = identifier_of(task)
        return JobsRun(
            (run for run in self._runs if run.job.task_identifier == identifier),
            (task for task in self._unknown if task.identifier == identifier),
        )

    def check(self, *, allow_unknown: bool = False) -> Self:
        """Raise the exception of the failed attempt, or an exception group if several failed.

        If a job waits for an unknown task, raise UnknownTaskError, unless `allow_unknown`.
        """
        errors = [run.error for run in self._runs if run.error is not None]
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise BaseExceptionGroup(f"{len(errors)} of {len(self._runs)} runs of jobs failed", errors)
        if self._unknown and not allow_unknown:
            raise UnknownTaskError("\n".join(map(str, self._unknown)))
        return self

    @overload
    def __getitem__(self, index: int) -> JobRun: ...
    @overload
    def __getitem__(self, index: slice) -> JobsRun: ...
    def __getitem__(self, index: int | slice) -> JobRun | JobsRun:
        return JobsRun(self._runs[index]) if isinstance(index, slice) else self._runs[index]

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[JobRun]:
        return iter(self._runs)

    def __repr__(self) -> str:
        return f"JobsRun({', '.join(map(repr, (*self._runs, *self._unknown)))})"


class Observed:
    """A plugin that collects the attempts of one or more workers from their events."""

    def __init__(self) -> None:
        self.runs: list[JobRun] = []
        self._running: dict[int, Job] = {}
        self._permanently_failed: set[int] = set()
        self._frames: dict[int, list[tuple[BaseException, TracebackType | None]]] = {}

    def install(self, hooks: Hooks) -> None:
        hooks.events.on(JobStarted, self._started)
        hooks.events.on(JobFailed, self._failed)
        hooks.events.on(JobCompleted, self._completed)
        hooks.events.on(JobSnoozed, self._ended)
        hooks.events.on(JobExpired, self._ended)
        hooks.events.on(JobCancelled, self._ended)
        hooks.events.on(JobOutcomeDiscarded, self._discarded)
        hooks.after_run(self._ran)

    @property
    def running(self) -> list[str]:
        """The running jobs, for messages."""
        return [_name(job) for job in self._running.values()]

    def _started(self, event: JobStarted) -> None:
        self._running[event.job.id] = event.job

    def _failed(self, event: JobFailed) -> None:
        self._permanently_failed.add(event.job.id)

    def _ran(self, job: Job, outcome: Outcome) -> None:
        """Keep the traceback, which the worker drops, so that the test fails with it."""
        if outcome.error is not None:
            self._frames[job.id] = [(each, each.__traceback__) for each in related(outcome.error)]

    def _discarded(self, event: JobOutcomeDiscarded | JobSnoozed | JobExpired | JobCancelled) -> None:
        self._running.pop(event.job.id, None)
        self._frames.pop(event.job.id, None)

    def _ended(self, event: JobSnoozed | JobExpired | JobCancelled) -> None:
        self._discarded(event)
        self.runs.append(
            JobRun(
                event.job,
                is_snoozed=isinstance(event, JobSnoozed),
                is_expired=isinstance(event, JobExpired),
                is_cancelled=isinstance(event, JobCancelled),
            )
        )

    def _completed(self, event: JobCompleted) -> None:
        self._running.pop(event.job.id, None)
        for error, frames in self._frames.pop(event.job.id, ()):
            error.with_traceback(frames)
        self.runs.append(JobRun(event.job, event.error, is_final=event.job.id in self._permanently_failed))


def identifier_of(task: Any) -> str:
    """The identifier of a task, of a function, or the string itself."""
    found = task if isinstance(task, str) else getattr(task, "identifier", getattr(task, "__name__", None))
    if not isinstance(found, str):
        raise TypeError(f"expected a task or its name, got {task!r}")
    return found


def _name(job: Job) -> str:
    return f"{job.task_identifier} {job.id}"


E = TypeVar("E", bound=Event)

_PATIENCE = 60.0  # seconds after which a waiting test is considered stuck


class EventRecorder:
    """Records the events of one `Events` object, a new one by default."""

    def __init__(self, events: Events | None = None) -> None:
        self.events: Events = events if events is not None else Events()
        """Pass this to the worker."""
        self.seen: list[Event] = []
        """All events so far, in order."""
        self._changed = asyncio.Event()
        self.events.on(Event, self._record)

    def of(self, *kinds: type[E]) -> list[E]:
        """The events of these classes so far, in order."""
        return [event for event in self.seen if isinstance(event, kinds)]

    def count(self, kind: type[Event]) -> int:
        """Number of events of a class so far."""
        return len(self.of(kind))

    @property
    def names(self) -> list[str]:
        """The names of all events so far, in order."""
        return [event.name for event in self.seen]

    async def wait_for(
        self,
        kind: type[E],
        *,
        count: int = 1,
        timeout: float = _PATIENCE,
        matching: Callable[[E], bool] | None = None,
    ) -> E:
        """Wait for the `count`-th (matching) event of a class, and return it."""
        try:
            async with asyncio.timeout(timeout):
                while True:
                    found = [event for event in self.of(kind) if matching is None or matching(event)]
                    if len(found) >= count:
                        return found[count - 1]
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise TimeoutError(
                f"waited {timeout} s for {count} of {kind.__name__}, saw {self.count(kind)}; "
                f"the last events: {self._last_names()}"
            ) from None

    def clear(self) -> None:
        """Forget all events so far."""
        self.seen.clear()

    def close(self) -> None:
        """Stop recording."""
        self.events.off(Event, self._record)

    def _record(self, event: Any) -> None:
        self.seen.append(event)
        self._changed.set()

    def _last_names(self) -> Sequence[str]:
        return self.names[-20:]
