"""The question before a change: a page of its own without script, a dialog with script.

A handler that wants one returns `confirmation(...)` as long as its form has no `confirmed`; the page sends
the same fields again, with `confirmed=yes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .answers import Page


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
