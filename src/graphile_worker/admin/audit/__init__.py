"""The audit: who did what, and what can be undone."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec

from ..answers import Skipped


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the audit."""

    id: int
    at: datetime
    who: str
    how: str
    origin: str
    action: str
    target: str
    jobs: int
    job_ids: list[int]
    details: dict[str, Any]
    operation_id: int | None
    undone_by: int | None
    can_undo: bool


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows of the audit to list, the latest first."""

    who: Annotated[str, msgspec.Meta(max_length=200)] = ""
    action: Annotated[str, msgspec.Meta(max_length=200)] = ""
    job: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    after: int | None = None
    """The id after which to go on: `next` of the page before."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=200)] = 50


class Restored(msgspec.Struct, frozen=True):
    """A job that is what it was before."""

    id: int
    new_id: int | None = None
    """The id under which a deleted job came back."""


class UndoAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What an undo did. More than 1,000 jobs are an operation of their own."""

    restored: list[Restored] = []
    left: list[Skipped] = []
    """Jobs that could not be put back."""
    operation_id: int | None = None
    message: str = ""
