"""SentryPlugin: installs what the modules of this package do, as hooks of a worker or client.

`FailureReporter` makes errors of attempts into events where the task ran, and sends them when the database
knows the outcome. Only the written outcome says whether a job is retried: rules of its task, its own
directives and its options decide after the run. The event is made earlier, because the error loses its frames
with the run. `silence_own_lines` keeps our own log lines from becoming events: each failure would be reported
twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Literal

import msgspec
import sentry_sdk
from sentry_sdk.integrations.logging import ignore_logger
from sentry_sdk.scope import add_global_event_processor
from sentry_sdk.utils import event_from_exception

from ...errors import ConfigError
from ...hooks import CallNext, Hooks, WorkerContext
from ...hooks.events import (
    CronStarting,
    JobCancelled,
    JobErrored,
    JobFailed,
    JobOutcomeDiscarded,
    JobSucceeded,
)
from ...values.job import Job
from ...values.outcome import Failed, Outcome
from .modes import guarded, trace_context_of
from .monitors import Monitors
from .spans import AddSpans, JobScope

FLUSH_WITHIN = 2.0  # seconds for what is not sent yet when the worker stops


class SentryPlugin:
    """Reports to Sentry what happens to jobs: `run(plugins=[SentryPlugin()])`, or `plugins = ["sentry"]`.

    - `capture`: `final` reports the error of a job when it has failed permanently, `all` that of each attempt
    - `propagate`: jobs carry the trace in which they were added, so that their run belongs to it
    - `monitor_cron`: report the runs of recurring jobs to Sentry's cron monitors
    - `exclude_cron`: identifiers of recurring jobs without a monitor
    - `payloads`: attach payloads; None follows `data_collection` or `send_default_pii` of the SDK
    - `init`: arguments of `sentry_sdk.init`, which is called if the program has not done it

    As long as the SDK is not initialised, nothing happens.
    """

    def __init__(
        self,
        *,
        capture: Literal["final", "all"] = "final",
        propagate: bool = True,
        monitor_cron: bool = False,
        exclude_cron: Collection[str] = (),
        payloads: bool | None = None,
        init: Mapping[str, Any] | None = None,
    ) -> None:
        if capture not in ("final", "all"):
            raise ConfigError(f"capture: expected final or all, got {capture!r}")
        if isinstance(exclude_cron, str):
            raise ConfigError(f"exclude_cron: expected a list of identifiers, got {exclude_cron!r}")
        self._propagate = propagate
        self._payloads = payloads
        self._init = None if init is None else dict(init)
        self._failures = FailureReporter(captures_all=capture == "all")
        self._monitors = Monitors(frozenset(exclude_cron)) if monitor_cron else None

    def install(self, hooks: Hooks) -> None:
        if self._init is not None and not sentry_sdk.is_initialized():
            sentry_sdk.init(**self._init)
        silence_own_lines()
        # They exist in the context of the worker then. One that its first job makes would change the context
        # of a slot, and such a slot is replaced.
        sentry_sdk.get_isolation_scope()
        sentry_sdk.get_current_scope()
        hooks.watch_adds(AddSpans(propagate=self._propagate))
        hooks.around_run(partial(self._run, hooks))
        hooks.events.on(JobErrored, self._failures.written)
        hooks.events.on(JobOutcomeDiscarded, self._failures.discarded)
        if self._monitors is not None:
            hooks.events.on(CronStarting, self._monitors.learn)
            hooks.events.on(JobSucceeded, self._monitors.succeeded)
            hooks.events.on(JobFailed, self._monitors.failed)
            hooks.events.on(JobCancelled, self._monitors.failed)

    async def start(self, worker: WorkerContext) -> None:
        """Nothing to do; `stop` is called because this exists."""

    async def stop(self) -> None:
        """Send what is waiting: a process that ends by a signal does not."""
        if sentry_sdk.is_initialized():
            await asyncio.to_thread(sentry_sdk.flush, FLUSH_WITHIN)

    async def _run(self, hooks: Hooks, job: Job, call_next: CallNext) -> Outcome:
        if not sentry_sdk.is_initialized():
            return await call_next()
        with JobScope(job, hooks, propagate=self._propagate, payloads=self._payloads) as scope:
            if self._monitors is not None:
                with guarded():
                    self._monitors.started(job)
            outcome = await call_next()
            if isinstance(outcome, Failed):
                with guarded():
                    scope.failed()
                    self._failures.keep(job, outcome, scope)
        return outcome


MECHANISM = {"type": "graphile_worker", "handled": False}


class _Kept(msgspec.Struct):
    """An event that is not sent yet, and the context in which the task ran."""

    context: Context
    event: Any
    hint: Any


class FailureReporter:
    """The errors of one worker whose outcome is not written yet."""

    def __init__(self, *, captures_all: bool) -> None:
        self._captures_all = captures_all
        self._kept: dict[int, _Kept] = {}

    def keep(self, job: Job, outcome: Failed, scope: JobScope) -> None:
        """Make the event; called in the scope of the run."""
        options = sentry_sdk.get_client().options
        event, hint = event_from_exception(outcome.error, client_options=options, mechanism=MECHANISM)
        if scope.span is not None:
            # The span has ended when the event is sent.
            event.setdefault("contexts", {})["trace"] = trace_context_of(scope.span)
        self._kept[job.id] = _Kept(copy_context(), event, hint)

    def written(self, event: JobErrored) -> None:
        """The failure is written: send it, or forget it if the job is retried."""
        kept = self._kept.pop(event.job.id, None)
        if kept is not None and (self._captures_all or not event.will_retry):
            with guarded():
                kept.context.run(sentry_sdk.capture_event, kept.event, kept.hint)

    def discarded(self, event: JobOutcomeDiscarded) -> None:
        """Another worker has the job now, and reports what happens to it."""
        self._kept.pop(event.job.id, None)


OWN = ("graphile_worker", "graphile_worker.[!j]*")
"""All our loggers except `graphile_worker.job`, by which tasks log: their lines are the application's."""

_is_done = False


def silence_own_lines() -> None:
    """Ignore our loggers, and our lines in a logger that the program has passed to the worker."""
    global _is_done
    if _is_done:
        return
    _is_done = True
    for name in OWN:
        ignore_logger(name)
    add_global_event_processor(_drop_own_line)


def _drop_own_line(event: Any, hint: dict[str, Any]) -> Any:
    record = hint.get("log_record")
    is_own = record is not None and hasattr(record, "event") and hasattr(record, "job_id")
    return None if is_own else event
