"""Time limits of jobs: how long one attempt may run.

A job says so itself with the flag `py:timeout=SECONDS`, its task with `@task(timeout=…)`, and the worker with
`job_timeout` for all others.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .directives import MAX_DELAY, check_period

TIMEOUT_FLAG = "py:timeout="


class TimeLimit(msgspec.Struct, frozen=True):
    """How long one attempt may run, in seconds; None if the task does not say."""

    seconds: float | None = None
    waits: bool = False
    """Whether the slot waits for a task that does not end."""


NO_LIMIT = TimeLimit()


def timeout_flag(value: Any) -> str:
    """The flag of a job with this limit: seconds or a timedelta. Raises InvalidArgumentError."""
    return f"{TIMEOUT_FLAG}{check_period('timeout', value):.15g}"


def timeout_in(raw_flags: str) -> float | str | None:
    """The seconds that the flags of a job say; None if they say nothing, the flag itself if it is wrong."""
    if TIMEOUT_FLAG not in raw_flags:
        return None
    try:
        flags = msgspec.json.decode(raw_flags)
    except msgspec.DecodeError:
        return raw_flags
    found = [flag for flag in flags if flag.startswith(TIMEOUT_FLAG)] if isinstance(flags, dict) else []
    return _seconds(found[0]) if found else None


def _seconds(flag: str) -> float | str:
    try:
        seconds = float(flag.removeprefix(TIMEOUT_FLAG))
    except ValueError:
        return flag
    return seconds if 0 < seconds <= MAX_DELAY else flag
