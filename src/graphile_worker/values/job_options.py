"""Every option of a job, declared once: its names, what it takes, how it is stored, where it makes no sense.

`JobSpec`, `JobOptions`, `TaskOptions` and `CronItemOptions` spell the options out for type checkers, and a
test compares them with this table. The other faces are derived from it: the flags of `graphile-worker add`
and its JSON lines, the options of a crontab line, the dashboard's form and API, the table in the docs.
`from_json` and `from_text` read a value where it is not a Python object. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal

import msgspec

from .spec import JOB_KEY_MODES, Unique
from .text import parse_period, parse_when

Kind = Literal["text", "number", "time", "period", "choice", "names", "switch", "keep", "unique"]
Face = Literal["add_job", "task", "add", "lines", "cron", "crontab", "dashboard", "django"]
"""Python's `add_job` and JobSpec; `@task`; the command `add`; its JSON lines; CronItem; a crontab; the
dashboard's form and API; Django's `using()`."""

WHOLE_PAYLOAD = "*"
"""In a text: the job is unique by its whole payload."""
_YES, _NO = ("yes", "true", "1"), ("no", "false", "0")


class JobOption(msgspec.Struct, frozen=True, kw_only=True):
    """One option."""

    name: str
    """In Python."""
    short: str
    """In JSON and in the dashboard."""
    kind: Kind
    label: str
    help: str
    stored: str
    """The column, or the flag that says it."""
    flag: str = ""
    """On the command line, if it is not the short name."""
    crontab: str = ""
    """In a line of a crontab."""
    metavar: str = ""
    choices: tuple[str, ...] = ()
    default: str = ""
    longest: int = 0
    """Characters of a text."""
    absent: Mapping[Face, str] = {}
    """Where it makes no sense, and why."""


_FROM_BACKEND = "the backend's RESULTS and RESULT_DAYS decide"

JOB_OPTIONS = (
    JobOption(
        name="queue_name",
        short="queue",
        kind="text",
        label="Queue",
        help="Named queue; its jobs run one after another.",
        stored="job_queue_id",
        crontab="queue",
        metavar="NAME",
        longest=128,
    ),
    JobOption(
        name="run_at",
        short="run_at",
        kind="time",
        label="Run at",
        help="Earliest time to run: 2030-01-31T12:00:00Z, or from now: 5m, 2h, 1d12h.",
        stored="run_at",
        metavar="WHEN",
        default="now",
        absent={
            "task": "each job has its own",
            "cron": "the pattern says when",
            "crontab": "the pattern says when",
            "django": "`run_after` is Django's name for it",
        },
    ),
    JobOption(
        name="priority",
        short="priority",
        kind="number",
        label="Priority",
        help="Lower numbers run first.",
        stored="priority",
        crontab="priority",
        metavar="N",
        default="0",
    ),
    JobOption(
        name="max_attempts",
        short="max_attempts",
        kind="number",
        label="Attempts",
        help="Maximum number of attempts.",
        stored="max_attempts",
        crontab="max",
        metavar="N",
        default="the task's, or 25",
    ),
    JobOption(
        name="job_key",
        short="key",
        kind="text",
        label="Job key",
        help="A unique name; replaces a waiting job with the same key.",
        stored="key",
        crontab="jobKey",
        metavar="KEY",
        longest=512,
    ),
    JobOption(
        name="job_key_mode",
        short="key_mode",
        kind="choice",
        label="If a job has this key",
        help="What to do with a waiting job that has the same key.",
        stored="key",
        crontab="jobKeyMode",
        choices=JOB_KEY_MODES,
        default="replace",
    ),
    JobOption(
        name="unique",
        short="unique",
        kind="unique",
        label="Unique by",
        help="Add nothing while there is a job of the task with the same payload, or the same members of it.",
        stored="key",
        crontab="unique",
        metavar="MEMBER",
    ),
    JobOption(
        name="tags",
        short="tags",
        kind="names",
        label="Tags",
        help="Labels to search for, count and show.",
        stored="py:tag=NAME",
        flag="tag",
        crontab="tags",
        metavar="NAME",
    ),
    JobOption(
        name="flags",
        short="flags",
        kind="names",
        label="Flags",
        help="Flags; a worker skips jobs with a flag that it forbids.",
        stored="flags",
        flag="flag",
        crontab="flags",
        metavar="NAME",
    ),
    JobOption(
        name="timeout",
        short="timeout",
        kind="period",
        label="Time limit",
        help="How long one attempt may run, such as 30s or 5m.",
        stored="py:timeout=SECONDS",
        crontab="timeout",
        metavar="TIME",
        default="the task's",
    ),
    JobOption(
        name="expires",
        short="expires",
        kind="time",
        label="Expires",
        help="Delete the job instead of running it: after this time, or this long after it could run.",
        stored="py:expires=SECONDS",
        crontab="expires",
        metavar="WHEN",
    ),
    JobOption(
        name="keep",
        short="keep",
        kind="keep",
        label="Keep",
        help="Keep the finished job with its result in the history.",
        stored="py:keep=SECONDS",
        crontab="keep",
        metavar="TIME",
        absent={"django": _FROM_BACKEND},
    ),
    JobOption(
        name="keep_payload",
        short="keep_payload",
        kind="switch",
        label="Keep the payload",
        help="Keep the payload with the finished job.",
        stored="py:keep_payload",
        crontab="keepPayload",
        absent={"django": _FROM_BACKEND},
    ),
)

BY_NAME = {option.name: option for option in JOB_OPTIONS}


def options_on(face: Face) -> tuple[JobOption, ...]:
    """The options that a face has."""
    return tuple(option for option in JOB_OPTIONS if face not in option.absent)


def from_json(option: JobOption, value: Any) -> Any:
    """The value for JobSpec. Raises ValueError; what JobSpec itself refuses passes."""
    if option.kind == "time" and isinstance(value, str):
        return parse_when(value)
    if option.kind == "period" and isinstance(value, str):
        return parse_period(value)
    if option.kind == "keep" and value is not None and not isinstance(value, bool):
        return parse_period(value) if isinstance(value, str) else _seconds(value)
    if option.kind == "unique":
        return _unique(value)
    return value


def from_text(option: JobOption, text: str) -> Any:
    """The value that a text stands for, as in a form or in a crontab. Raises ValueError."""
    text = text.strip()
    match option.kind:
        case "number":
            if not re.fullmatch(r"-?[0-9]{1,9}", text):
                raise ValueError(f"{text!r} is not a whole number")
            return int(text)
        case "names":
            return tuple(filter(None, re.split(r"[,\s]+", text)))
        case "switch":
            return _switch(text)
        case "keep":
            return _switch(text) if text.lower() in (*_YES, *_NO) else parse_period(text)
        case "unique":
            if not text:
                raise ValueError(f"expected names of members, or {WHOLE_PAYLOAD} for the whole payload")
            return Unique() if text == WHOLE_PAYLOAD else Unique(fields=re.split(r"[,\s]+", text))
    return from_json(option, text)


def _seconds(value: Any) -> timedelta:
    try:
        return timedelta(seconds=value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{value!r} is not a number of seconds") from None


def _switch(text: str) -> bool:
    if text.lower() not in (*_YES, *_NO):
        raise ValueError(f"{text!r} is neither yes nor no")
    return text.lower() in _YES


def _unique(value: Any) -> Any:
    """True for the whole payload, a list of members, or an object with `fields` and `while`."""
    if value is True:
        return Unique()
    if value is None or value is False:
        return None
    if isinstance(value, Mapping) and value.keys() <= {"fields", "while"}:
        return Unique(**{name if name == "fields" else "while_": each for name, each in value.items()})
    return Unique(fields=value)
