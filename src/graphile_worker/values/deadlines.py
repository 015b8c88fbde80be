"""Times after which a job is ended or not run: time limits of attempts, and expiry.

How long one attempt may run: a job says so itself with the flag `py:timeout=SECONDS`, its task with
`@task(timeout=…)`, and the worker with `job_timeout` for all others.

When a single job expires: it has the flag `py:expires=+SECONDS` or `py:expires=EPOCH`. With a plus sign it
counts from when the job could run, like the option of a task; without, it is a time in seconds since 1970.
The worker deletes an expired job instead of calling its task.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Any

import msgspec

from ..errors import InvalidArgumentError
from .retry import MAX_DELAY, check_period

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


EXPIRES_FLAG = "py:expires="


class Expiry(msgspec.Struct, frozen=True):
    """When a job expires."""

    seconds: float
    is_relative: bool
    """Whether it counts from when the job could run; otherwise it is a time, in seconds since 1970."""


def expiry_flag(value: datetime | timedelta) -> str:
    """The flag of a job that expires then. Raises InvalidArgumentError."""
    if isinstance(value, timedelta):
        return f"{EXPIRES_FLAG}+{check_period('expires', value):.15g}"
    if not isinstance(value, datetime):
        raise InvalidArgumentError("expires", f"expected a time or a timedelta, got {value!r}")
    if value.utcoffset() is None:
        raise InvalidArgumentError(
            "expires",
            f"{value!r} has no time zone; give it one, as in datetime.now(UTC), or give a timedelta",
        )
    return f"{EXPIRES_FLAG}{value.timestamp():.15g}"


def expiry_of(raw_flags: str | None) -> Expiry | None:
    """When the job with these flags expires; None if they do not say."""
    if raw_flags is None or EXPIRES_FLAG not in raw_flags:
        return None
    flags = msgspec.json.decode(raw_flags)
    found = [flag for flag in flags if flag.startswith(EXPIRES_FLAG)] if isinstance(flags, dict) else []
    return _parsed(found[0].removeprefix(EXPIRES_FLAG)) if found else None


def _parsed(text: str) -> Expiry | None:
    """None for a flag that another program got wrong, which must not fail the job."""
    try:
        seconds = float(text)
    except ValueError:
        return None
    return Expiry(seconds, text.startswith("+")) if math.isfinite(seconds) else None
