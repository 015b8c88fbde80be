"""`/jobs/actions`: forms for actions on jobs, with a question where one is due."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import msgspec

from ..answers import Page, Problem, Redirect, confirmation
from ..audit.queries import words_for
from ..audit.recording import actor_of
from ..web.call import Call, return_url
from ..web.routes import Route
from ..web.times import instant, zone_name
from . import (
    MAX_IDS,
    PERMISSION_FOR,
    ActionAnswer,
    ActionName,
    ActionRequest,
    Attempts,
    Reason,
    Smallint,
    changing,
)
from .action_api import announced

AT_ONCE: tuple[ActionName, ...] = ("run_now", "retry", "add_again")
"""Actions on a few jobs that need no question: they can be undone, and do no harm."""
FEW = 20
QUESTIONS: dict[ActionName, str] = {
    "run_now": "They can start at once. Jobs without attempts are retried.",
    "retry": "They can start at once, with all their attempts.",
    "reschedule": "",
    "give_up": "They fail permanently and stay in the list of failed jobs. This can be undone for 24 hours.",
    "delete": "They are deleted without being run. This can be undone for 24 hours; they get new ids then.",
    "cancel": "Jobs that do not run are deleted. Workers are asked to end others, which cannot be undone.",
    "add_again": "New jobs are added with the same values, without a job key.",
}


class ActionForm(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of the forms."""

    action: ActionName
    ids: Annotated[list[int], msgspec.Meta(max_length=MAX_IDS)] = []
    back: str = ""
    confirmed: str = ""
    state: str = ""
    reason: Reason = ""
    one_more: str = ""
    run_at: str = ""
    """In the viewer's zone, without a zone."""
    priority: Smallint | None = None
    attempts: Attempts | None = None
    max_attempts: Annotated[int, msgspec.Meta(ge=1, le=32767)] | None = None


async def ask(call: Call) -> Page | Redirect:
    """The question, for links."""
    form = call.query(ActionForm)
    call.require(PERMISSION_FOR[form.action])
    return _question(call, form)


async def act(call: Call) -> Page | Redirect:
    form = await call.form(ActionForm)
    call.require(PERMISSION_FOR[form.action])
    if not form.ids:
        return Redirect(_back(call, form), "No job is selected.")
    is_small = form.action in AT_ONCE and len(form.ids) <= FEW
    if not form.confirmed and not is_small:
        return _question(call, form)
    request = _request(call, form)
    done = await changing.act(call.database, actor_of(call), request, may_delete=call.may("jobs.delete"))
    answer = announced(call, done)
    return Redirect(_back(call, form, answer), notice_of(answer), undo=answer.undo or "")


def notice_of(answer: ActionAnswer) -> str:
    """The sentence, and for a few jobs why each was skipped."""
    if len(answer.skipped) > 3:
        return answer.message
    reasons = [f"{job.id}: {job.why}{', ' + job.detail if job.detail else ''}" for job in answer.skipped]
    return " ".join([answer.message, *(f"Job {reason}." for reason in reasons)])


def _question(call: Call, form: ActionForm) -> Page:
    if not form.ids:
        raise Problem(400, "No job is selected", "Go back and select at least one.")
    title = f"{words_for(form.action)} {changing.ids_in_words(form.ids)}?"
    fields = _fields(form)
    if form.action == "reschedule":
        if _has_values(form):
            return _check_reschedule(call, form, title)
        values = {"fields": fields, "zone": zone_name(call.zone), "back": _back(call, form)}
        return Page("reschedule.html", title.rstrip("?"), here="jobs", values=values)
    return confirmation(
        title,
        QUESTIONS[form.action],
        path="/jobs/actions",
        fields=fields,
        submit=words_for(form.action),
        back=_back(call, form),
        tone="danger" if form.action in ("delete", "cancel", "give_up") else "primary",
        asks_reason=form.action in ("give_up", "cancel", "delete"),
        here="jobs",
    )


def _check_reschedule(call: Call, form: ActionForm, title: str) -> Page:
    """The new values once more, with the time in UTC as well."""
    points = []
    at = local_time(call, form.run_at)
    if at is not None:
        points.append(f"Run at {instant(at, call.zone)}, which is {instant(at, UTC)}")
    points += [
        f"{label}: {value}"
        for label, value in (
            ("Priority", form.priority),
            ("Attempts used", form.attempts),
            ("Maximum attempts", form.max_attempts),
        )
        if value is not None
    ]  # fmt: skip
    return confirmation(
        title, path="/jobs/actions", fields=_fields(form), submit="Reschedule", back=_back(call, form),
        tone="primary", points=points, here="jobs",
    )  # fmt: skip


def _fields(form: ActionForm) -> list[tuple[str, object]]:
    """The form once more, for hidden fields."""
    names = ("action", "back", "state", "one_more", "run_at", "priority", "attempts", "max_attempts")
    given: list[tuple[str, object]] = [(name, getattr(form, name)) for name in names]
    return [*((name, value) for name, value in given if value not in (None, "")), *_id_fields(form.ids)]


def _id_fields(ids: Sequence[int]) -> list[tuple[str, object]]:
    return [("ids", job_id) for job_id in ids]


def _has_values(form: ActionForm) -> bool:
    return bool(form.run_at) or any(
        getattr(form, name) is not None for name in ("priority", "attempts", "max_attempts")
    )


def _request(call: Call, form: ActionForm) -> ActionRequest:
    values = {
        "action": form.action, "ids": form.ids, "state": form.state or None, "reason": form.reason,
        "one_more": bool(form.one_more), "run_at": local_time(call, form.run_at),
        "priority": form.priority, "attempts": form.attempts, "max_attempts": form.max_attempts,
    }  # fmt: skip
    try:
        return msgspec.convert(values, ActionRequest)
    except msgspec.ValidationError as error:
        raise Problem(400, "A value is not valid", str(error)) from None


def local_time(call: Call, text: str) -> datetime | None:
    """A time that was typed in the viewer's zone."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise Problem(400, "The time is not valid", "Write it as 2030-01-31T12:00.") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=call.zone)


def _back(call: Call, form: ActionForm, answer: ActionAnswer | None = None) -> str:
    if answer is not None and answer.added and len(answer.added) == 1:
        return f"/jobs/{answer.added[0]}"
    return return_url(call, form.back, f"/jobs/{form.ids[0]}" if len(form.ids) == 1 else "/jobs")


ANY_ACTION = tuple(dict.fromkeys(PERMISSION_FOR.values()))
ROUTES = [
    Route(
        method="GET", path="/jobs/actions", handler=ask, permission=ANY_ACTION, query=ActionForm,
        summary="Ask before an action",
    ),
    Route(
        method="POST", path="/jobs/actions", handler=act, permission=ANY_ACTION, body=ActionForm,
        summary="Act on jobs",
    ),
]  # fmt: skip
