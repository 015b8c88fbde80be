"""Errors of attempts: made into events where the task ran, sent when the database knows the outcome.

Only the written outcome says whether a job is retried: rules of its task, its own directives and its options
decide after the run. The event is made earlier, because the error loses its frames with the run.
"""

from __future__ import annotations

from contextvars import Context, copy_context
from typing import Any

import msgspec
import sentry_sdk
from sentry_sdk.utils import event_from_exception

from ...hooks.events import JobErrored, JobOutcomeDiscarded
from ...values.job import Job
from ...values.outcome import Failed
from .carried import guarded
from .modes import trace_context_of
from .scopes import JobScope

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
