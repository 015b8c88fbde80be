"""Jobs as the API and the pages show them.

The names are those of `graphile-worker list --json` and `show --json` (see diagnostics/json_shapes).
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, get_args

import msgspec

from ...database.statements.job_filter import JobState
from ...history.records import AttemptError, FinishedState
from ...history.task_reports import Progress
from ...values.job_options import Kind, options_on
from ...values.text import how_it_failed
from ..answers import Count, Skipped

ListOrder = Literal["newest", "oldest", "run_order"]
"""By descending or ascending id, or as workers take them. The newest of finished jobs is the last to end."""


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job in a list, in the queue or finished. Secrets in error and payload are redacted."""

    id: int
    task_identifier: str
    state: JobState | FinishedState
    queue_name: str | None
    priority: int
    run_at: datetime
    attempts: int
    max_attempts: int
    last_error: str | None
    """The first 4,000 characters."""
    created_at: datetime
    key: str | None
    flags: list[str]
    updated_at: datetime | None = None
    revision: int | None = None
    """None for a finished job, which is no longer in the queue."""
    locked_by: str | None = None
    locked_at: datetime | None = None
    failed_at: datetime | None = None
    """When it failed permanently."""
    attempts_made: int | None = None
    """How many attempts a permanently failed job had; None if that is not known."""
    queue_locked_by: str | None = None
    """The pool that has locked the queue of the job; `py:hold` if the queue is paused."""
    payload: msgspec.Raw | None = None
    """None if it was not asked for, or is longer than 64 KB."""
    started_at: datetime | None = None
    """Of a finished job: the begin of its last attempt."""
    finished_at: datetime | None = None
    duration: float | None = None
    """Of a finished job: the seconds that its last attempt took."""
    pool_id: str | None = None
    """Of a finished job: the pool that ran it last."""

    @property
    def situation(self) -> str:
        """The state in more detail: a word for the chip."""
        if self.state == "scheduled" and self.attempts:
            return "retry"
        return "permanently_failed" if self.state == "failed" else self.state

    @property
    def at(self) -> datetime | None:
        """The time that a list shows: when it runs, has been running since, failed or ended."""
        if self.finished_at is not None:
            return self.finished_at
        if self.state == "failed":
            return self.failed_at
        return self.locked_at if self.state == "running" else self.run_at

    @property
    def tried(self) -> str:
        """How many attempts there were, of how many."""
        made = self.attempts_made if self.state == "failed" else self.attempts
        return f"{'?' if made is None else made}/{self.max_attempts}"

    @property
    def note(self) -> str:
        """What a list says about the state, if there is more to say."""
        if self.state == "failed":
            return how_it_failed(self.attempts_made, self.max_attempts)
        if self.queue_locked_by == "py:hold":
            return "queue paused"
        return "queue busy" if self.state == "ready" and self.queue_locked_by is not None else ""


class Searched(msgspec.Struct, frozen=True):
    """How far a search that no index serves has come."""

    jobs: int
    """Jobs that were read for this page."""
    of: Count
    """Jobs that there are."""
    is_complete: bool


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of jobs."""

    items: list[JobRow]
    next: str | None = None
    """The cursor of the next page (`after=`); None on the last."""
    previous: str | None = None
    """The cursor of the previous page; None on the first, and in run order."""
    count: Count | None = None
    searched: Searched | None = None
    """Only if no index serves the filter."""
    order: ListOrder = "newest"
    is_reported: bool = False
    """Whether these are the running jobs that workers reported, and not the result of a search."""
    problem: str | None = None
    """Why there are no finished jobs: nothing is kept here, and what to do."""


# -- one job ------------------------------------------------------------------------------------------------

JobViewState = JobState | FinishedState | Literal["gone"]


class FinishedView(msgspec.Struct, frozen=True, kw_only=True):
    """How the job ended, if that was kept."""

    id: int
    task_identifier: str
    state: FinishedState
    queue_name: str | None
    key: str | None
    priority: int
    attempts: int
    max_attempts: int
    created_at: datetime
    run_at: datetime
    started_at: datetime | None
    finished_at: datetime
    duration: float | None
    pool_id: str | None
    payload: msgspec.Raw | None
    error: str | None
    result: msgspec.Raw | None
    """What the task returned, redacted."""


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job. What only a row in the queue has is None once the job is gone."""

    id: int
    task_identifier: str | None
    state: JobViewState
    queue_name: str | None = None
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
    progress: Progress | None = None
    history: list[FinishedView] = []
    """The latest first."""
    errors: list[AttemptError] = []
    """Failed attempts, redacted, the latest first."""
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


# -- actions ------------------------------------------------------------------------------------------------

ActionName = Literal["run_now", "retry", "reschedule", "give_up", "delete", "cancel", "add_again"]
ACTIONS: tuple[ActionName, ...] = get_args(ActionName)
MAX_IDS = 200
"""Jobs of one action; more are an operation."""

Smallint = Annotated[int, msgspec.Meta(ge=-32768, le=32767)]
Attempts = Annotated[int, msgspec.Meta(ge=0, le=32767)]
Reason = Annotated[str, msgspec.Meta(max_length=500)]


class ActionValues(msgspec.Struct, frozen=True, kw_only=True):
    """What an action needs besides the jobs; each uses only some of it."""

    run_at: datetime | None = None
    """reschedule: when to run; without a time zone, UTC."""
    priority: Smallint | None = None
    """reschedule."""
    attempts: Attempts | None = None
    """reschedule: how many attempts count as used."""
    max_attempts: Annotated[int, msgspec.Meta(ge=1, le=32767)] | None = None
    """reschedule."""
    one_more: bool = False
    """retry: allow one attempt more, in place of all of them again."""
    reason: Reason = ""
    """give_up and cancel: stored with the jobs."""

    @property
    def changes(self) -> dict[str, datetime | int]:
        """What a reschedule is to change."""
        names = ("run_at", "priority", "attempts", "max_attempts")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    @property
    def given(self) -> dict[str, object]:
        """What was given besides the jobs, for the audit."""
        more = {"one_more": self.one_more, "reason": self.reason}
        return {**self.changes, **{name: value for name, value in more.items() if value}}


class ActionRequest(ActionValues, frozen=True, kw_only=True):
    """An action on up to 200 jobs."""

    action: ActionName
    ids: Annotated[list[int], msgspec.Meta(max_length=MAX_IDS)] = []
    state: Literal["ready", "scheduled", "failed"] | None = None
    """Only jobs that are still in this state; others are skipped as changed."""
    back: str = ""
    """Of a form: the page to return to."""


class ActionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of each job: every id is in `changed` or in `skipped`."""

    action: ActionName
    changed: list[int]
    skipped: list[Skipped] = []
    retried: list[int] = []
    """run_now: those of `changed` that had no attempts left, and got all of them again."""
    asked: list[int] = []
    """cancel: those of `changed` that are running; their workers were asked to end them."""
    added: list[int] = []
    """add_again: the ids of the new jobs."""
    undo: str | None = None
    """The id in the audit, for `POST /audit/{id}/undo`; None if it cannot be undone."""
    message: str = ""
    """What happened, in one sentence."""
