"""One job with all that is known about it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

from ...database.statements.job_filter import JobState
from ...history.records import FinishedState
from ...values.attempts import how_it_failed
from ...values.job_options import Kind, options_on

JobViewState = JobState | FinishedState | Literal["gone"]


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """A failed attempt, redacted."""

    attempt: int
    failed_at: datetime
    duration: float | None
    is_final: bool
    error_type: str | None
    message: str
    traceback: str | None
    fingerprint: str
    worker: str | None
    version: str | None


class FinishedView(msgspec.Struct, frozen=True, kw_only=True):
    """How the job ended, if that was kept."""

    state: FinishedState
    finished_at: datetime
    started_at: datetime | None
    duration: float | None
    attempts: int
    worker: str | None
    error: str | None
    result: msgspec.Raw | None
    """What the task returned, redacted."""


class ProgressView(msgspec.Struct, frozen=True, kw_only=True):
    """What the task reports while it runs."""

    share: float | None
    note: str | None
    data: Any
    updated_at: datetime


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job. What only a row in the queue has is None once the job is gone."""

    id: int
    state: JobViewState
    task: str | None
    queue: str | None = None
    priority: int | None = None
    run_at: datetime | None = None
    attempts: int | None = None
    max_attempts: int | None = None
    attempts_made: int | None = None
    """How many attempts a permanently failed job had; None if that is not known."""
    last_error: str | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    key: str | None = None
    flags: list[str] = []
    revision: int | None = None
    locked_by: str | None = None
    locked_at: datetime | None = None
    lane: str | None = None
    """In which it runs; None if its worker has one lane only."""
    failed_at: datetime | None = None
    payload: msgspec.Raw | None = None
    """Redacted. None if it is gone, or longer than 1 MB: then it is a download."""
    is_cancelled: bool = False
    cancel_reason: str | None = None
    progress: ProgressView | None = None
    history: list[FinishedView] = []
    """The latest first."""
    failed_attempts: list[Attempt] = []
    """The latest first."""
    problem: str | None = None
    """Why the history could not be read."""

    @property
    def is_queued(self) -> bool:
        """Whether it is in the queue, waiting, running or failed."""
        return self.revision is not None

    @property
    def tried(self) -> str | None:
        """How many attempts there were."""
        if self.state == "failed":
            return how_it_failed(self.attempts_made, self.max_attempts) or None
        return None if self.attempts is None else f"{self.attempts} of {self.max_attempts}"


class Revealed(msgspec.Struct, frozen=True):
    """A payload without redaction."""

    id: int
    payload: msgspec.Raw


class JobToAdd(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part of `NewJob` that is not an option."""

    task: str
    payload: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))
    """Any JSON value; `{}` by default."""
    check: bool = True
    """Refuse a payload that the task cannot take, if workers say what it expects."""


JSON_TYPES: dict[Kind, Any] = {
    "text": str,
    "number": int,
    "time": str,
    "period": float | str,
    "names": list[str],
    "switch": bool,
    "keep": bool | float | str,
    "unique": bool | list[str],
}

NewJob: type[JobToAdd] = msgspec.defstruct(  # type: ignore[assignment]
    "NewJob",
    [
        (option.short, (Literal[option.choices] if option.choices else JSON_TYPES[option.kind]) | None, None)
        for option in options_on("dashboard")
    ],
    bases=(JobToAdd,),
    namespace={"__doc__": "A job to add; the options have their short names, as in JSON lines."},
    module=__name__,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
)


class JobEdit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new payload for a job that has not changed since it was read."""

    payload: msgspec.Raw
    revision: int
    check: bool = True
    """Refuse a payload that the task cannot take, if workers say what it expects."""
