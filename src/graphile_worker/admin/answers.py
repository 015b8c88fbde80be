"""What handlers return: a page, a redirect after a change, a file, or a problem that the person can act on.

A handler serves a page and the API: a `Page` and a `Redirect` have the `answer` that is sent as JSON. Counts,
lists and values over time are those that several subjects use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Any, Generic, Literal, TypeVar
from urllib.parse import urlencode

import msgspec


@dataclass(frozen=True, slots=True)
class Page:
    """A template with its values; the layout adds the frame.

    `here` is the entry of the navigation that is current: overview, jobs, failures, tasks, queues, workers,
    schedules, doctor, audit or about.
    """

    template: str
    title: str
    here: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    answer: Any = None
    """What the API sends instead of the page."""
    status: int = 200


@dataclass(frozen=True, slots=True)
class Redirect:
    """To another page of the dashboard, after a form was sent. `notice` is shown there once.

    `path` is below the root of the database that the call is about, as for `call.url`.
    """

    path: str
    notice: str = ""
    undo: str = ""
    """The id of the audit entry that can be undone; the notice offers it."""
    answer: Any = None
    """What the API sends instead."""


@dataclass(frozen=True, slots=True)
class Notice:
    """What the page before this one wants to say; templates have it as `notice`, or None."""

    text: str
    undo: str = ""
    database: str = ""
    """The name of the database that it is about."""


@dataclass(frozen=True, slots=True)
class Download:
    """A file to save."""

    content: bytes
    name: str
    media_type: str


def address(path: str, **query: str) -> str:
    """A path below the root of the database, with a query, as redirects and forms need it."""
    return f"{path}?{urlencode(query)}"


class Problem(Exception):
    """A refusal that the person can act on; a problem document (RFC 9457) in the API, a plain page else."""

    def __init__(self, status: int, title: str, detail: str = "", **more: Any) -> None:
        super().__init__(title)
        self.status = status
        self.title = title
        self.detail = detail
        self.more = more


def not_found(what: str) -> Problem:
    return Problem(404, f"There is no {what}")


def not_allowed(permission: str) -> Problem:
    return Problem(403, "You may not do this", f"It needs the permission {permission}.")


# -- questions ----------------------------------------------------------------------------------------------


def confirmation(
    title: str,
    detail: str = "",
    *,
    path: str,
    fields: Mapping[str, object] | Sequence[tuple[str, object]] = (),
    submit: str,
    back: str,
    tone: str = "danger",
    typed: str = "",
    points: Sequence[str] = (),
    asks_reason: bool = False,
    here: str = "",
) -> Page:
    """Ask before `path` is called with `fields`.

    `typed` is what must be typed first, such as the number of jobs: the field `typed` of the form.
    `points` are listed below the detail. `asks_reason` adds a field `reason`.
    `back` is the path that Cancel leads to.
    """
    pairs = list(fields.items()) if isinstance(fields, Mapping) else list(fields)
    values = {
        "detail": detail, "path": path, "fields": pairs, "submit": submit, "back": back, "tone": tone,
        "typed": typed, "points": list(points), "asks_reason": asks_reason,
    }  # fmt: skip
    return Page("confirm.html", title, here=here, values=values)


# -- counts and lists ---------------------------------------------------------------------------------------

T = TypeVar("T")

CountKind = Literal["exact", "estimate", "at_least"]


class Count(msgspec.Struct, frozen=True):
    """A number, and how far it can be trusted."""

    value: int
    kind: CountKind = "exact"

    def __str__(self) -> str:
        if self.kind == "exact":
            return f"{self.value:,}"
        if self.kind == "at_least":
            return f"{self.value:,}+" if self.value else "—"
        return f"≈ {abbreviated(self.value)}"


class Listing(msgspec.Struct, Generic[T], frozen=True):
    """One page of a list."""

    items: list[T]
    next: str | None = None
    """The cursor of the next page (`after=`); None on the last."""
    count: Count | None = None


ASCENDING = frozenset({"name", "oldest", "locked"})
"""Orders in which the smallest or earliest value comes first; in others the largest or latest does."""


def in_order(rows: Iterable[T], order: str, values: Mapping[str, Callable[[T], Any]]) -> list[T]:
    """Rows by a value of each, equal ones by name; what is not known comes last.

    An order that has no value is the one in which the rows were read.
    """
    value = values.get(order)
    if value is None:
        return list(rows)
    named = sorted(rows, key=values["name"])
    known = [row for row in named if value(row) is not None]
    unknown = [row for row in named if value(row) is None]
    return sorted(known, key=value, reverse=order not in ASCENDING) + unknown


@dataclass(frozen=True, slots=True)
class Sorting:
    """The order of a list, for the headers of its table (`sort` of `ui.table`)."""

    order: str
    link: Callable[..., str]
    """The address of the same list in another `order`."""

    def header(self, order: str) -> tuple[str, str]:
        """The `aria-sort` of a column, and its address unless the list is in this order."""
        if order != self.order:
            return "", self.link(order=order)
        return "ascending" if order in ASCENDING else "descending", ""


Why = Literal["running", "gone", "changed", "busy", "not allowed"]
"""Why a job was left as it was."""


class Skipped(msgspec.Struct, frozen=True):
    """A job that was left as it was."""

    id: int
    why: Why
    detail: str = ""


def abbreviated(value: float) -> str:
    """1.2 M, 34 k, 812."""
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if value >= 10 * size:
            return f"{value / size:,.0f} {unit}"
        if value >= size:
            return f"{value / size:,.1f} {unit}"
    return f"{value:,.0f}"


S = TypeVar("S", bound=msgspec.Struct)


def shared_with(value: object, type: type[S], **more: Any) -> S:
    """A struct that has what `value` has by the same names, and `more`, which counts first."""
    names = [name for name in type.__struct_fields__ if name not in more and hasattr(value, name)]
    return type(**{name: getattr(value, name) for name in names}, **more)


def as_raw(text: str) -> msgspec.Raw:
    """A JSON text as it is; halves of surrogate pairs, which are not text, are replaced."""
    return msgspec.Raw(text.encode("utf-8", "replace"))


# -- pauses -------------------------------------------------------------------------------------------------

Period = Annotated[int, msgspec.Meta(ge=1, le=366 * 86_400)]
"""Seconds, up to a year: how long a pause lasts."""
PERIODS = (
    ("", "until it is resumed"), ("900", "15 minutes"), ("3600", "1 hour"), ("21600", "6 hours"),
    ("86400", "24 hours"),
)  # fmt: skip
"""How long a pause may be, in seconds and in words."""


class PauseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A pause; what is paused is in the subjects' own requests."""

    until: datetime | None = None
    """None for no end."""
    period: Period | None = None
    """Seconds, instead of `until`."""
    reason: str = ""

    @property
    def end(self) -> datetime | timedelta | None:
        """A time if one was given, else a period; None for no end."""
        if self.until is not None or self.period is None:
            return self.until
        return timedelta(seconds=self.period)


def pause_form(
    what: str, text: str, *, path: str, fields: Mapping[str, object], back: str, here: str
) -> Page:
    """Ask for how long to pause, and why; `text` says what a pause does."""
    title = f"Pause {what[:80]}"
    values = {"text": text, "path": path, "fields": fields, "periods": PERIODS, "back": back}
    return Page("pause.html", title, here=here, values=values)


# -- values over time ---------------------------------------------------------------------------------------

RangeName = Literal["15m", "1h", "6h", "24h", "48h", "7d", "30d", "90d"]
MarkerKind = Literal["deploy", "pause", "action", "restart"]
Points = list[float | None]


class Marker(msgspec.Struct, frozen=True):
    """Something that happened at one moment: a deploy, a pause, an action of a person, a restart."""

    at: datetime
    kind: MarkerKind
    text: str


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """Values every `step` seconds since `start`."""

    start: datetime = msgspec.field(name="from")
    step: int
    """Seconds."""
    points: dict[str, dict[str, Points]]
    """By task, or `all`, and then by metric. Rates are per minute, times in seconds; null if unknown."""
    markers: list[Marker] = []
    is_recorded: bool = True
    """False if no worker records statistics: the tables are missing."""
