"""Redacts the texts of failures before they are written, to `last_error` as well as to the history."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..hooks.redaction import Redactor, redacted_text
from ..outcome import Failed, Finished


def with_redacted_errors(batch: Sequence[Finished], redactors: Sequence[Redactor]) -> list[Finished]:
    """The batch with redacted messages and tracebacks; observers and logs get the originals."""
    return [
        _redacted(finished, finished.outcome, redactors) if isinstance(finished.outcome, Failed) else finished
        for finished in batch
    ]


def _redacted(finished: Finished, outcome: Failed, redactors: Sequence[Redactor]) -> Finished:
    identifier = finished.job.task_identifier
    message = redacted_text(redactors, identifier, outcome.message)
    traceback = outcome.traceback and redacted_text(redactors, identifier, outcome.traceback)
    return msgspec.structs.replace(
        finished, outcome=msgspec.structs.replace(outcome, message=message, traceback=traceback)
    )
