"""Which finished jobs are kept in the history, for how long, and what of the job.

A job says so itself with a flag, its task with `@task(keep=…)`, and the worker with `history` for all others.
Flags that begin with `py:` are reserved for this package; other runtimes ignore them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal, get_args

import msgspec

from ..errors import ConfigError, InvalidArgumentError

HistoryMode = Literal["none", "failed", "all"]
"""Which finished jobs a worker keeps by itself: none, permanently failed ones, or all of them."""
HISTORY_MODES: tuple[str, ...] = get_args(HistoryMode)

KEEP_FLAG = "py:keep"
"""Keep this job when it is finished and announce it; `py:keep=SECONDS` says for how long."""
KEEP_PAYLOAD_FLAG = "py:keep_payload"
MAX_RETENTION = timedelta(days=3660)
HOUR = 3600.0


class Retention(msgspec.Struct, frozen=True):
    """How to keep a finished job."""

    seconds: float
    payload: bool = False
    """Whether to keep the payload too."""


class RetentionPolicy:
    """What one worker keeps."""

    def __init__(
        self, mode: str = "none", *, default: Retention, tasks: Mapping[str, Retention | None] | None = None
    ) -> None:
        """`tasks`: what tasks say themselves; None to keep nothing of the task."""
        self._default = default
        self._tasks = dict(tasks or {})
        self._completed = default if mode == "all" else None
        self._failed = None if mode == "none" else default
        self.keeps_completed = mode == "all" or any(self._tasks.values())
        """Whether any task of this worker is kept when it completes; single jobs may be too."""

    def add_tasks(self, tasks: Mapping[str, Retention | None]) -> None:
        """Keep what these tasks say, too."""
        self._tasks.update(tasks)
        self.keeps_completed = self.keeps_completed or any(tasks.values())

    def for_completed(self, task_identifier: str, raw_flags: str | None) -> Retention | None:
        """How to keep a completed job."""
        return self._find(task_identifier, raw_flags, self._completed)

    def for_failed(self, task_identifier: str, raw_flags: str | None) -> Retention | None:
        """How to keep a permanently failed job."""
        return self._find(task_identifier, raw_flags, self._failed)

    def every(self) -> set[Retention]:
        """All that this worker keeps without being asked by a job."""
        return {
            retention
            for retention in (self._completed, self._failed, *self._tasks.values())
            if retention is not None
        }

    def _find(
        self, task_identifier: str, raw_flags: str | None, otherwise: Retention | None
    ) -> Retention | None:
        found = self._tasks.get(task_identifier, otherwise)
        if raw_flags is not None and KEEP_FLAG in raw_flags:
            return _by_flags(raw_flags, found or self._default)
        return found


def is_awaited(raw_flags: str | None) -> bool:
    """Whether a client may wait for the end of a job with these flags."""
    return raw_flags is not None and KEEP_FLAG in raw_flags


def keep_flags(keep: bool | timedelta, *, payload: bool = False) -> list[str]:
    """The flags of a job that is to be kept."""
    if keep is False:
        return []
    seconds = "" if keep is True else f"={check_keep(keep, 'keep'):g}"
    return [f"{KEEP_FLAG}{seconds}", *([KEEP_PAYLOAD_FLAG] if payload else [])]


def check_keep(value: Any, argument: str) -> float:
    """The seconds of a time to keep something."""
    if not isinstance(value, timedelta) or not timedelta() < value <= MAX_RETENTION:
        raise InvalidArgumentError(
            argument, f"expected True, False or a timedelta up to {MAX_RETENTION.days} days, got {value!r}"
        )
    return value.total_seconds()


def check_history_mode(value: object) -> None:
    """Reject an unknown mode."""
    if value not in HISTORY_MODES:
        raise ConfigError(f"history: expected one of {', '.join(HISTORY_MODES)}; got {value!r}")


def _rounded(seconds: float) -> float:
    """To full hours, days or weeks: jobs that are kept alike are written by one statement."""
    unit = HOUR if seconds <= 24 * HOUR * 17 else 24 * HOUR if seconds <= 24 * HOUR * 100 else 168 * HOUR
    return min(math.ceil(seconds / unit) * unit, MAX_RETENTION.total_seconds())


def _by_flags(raw_flags: str, otherwise: Retention) -> Retention:
    try:
        flags = msgspec.json.decode(raw_flags)
    except msgspec.DecodeError:
        return otherwise
    seconds = otherwise.seconds
    for flag in flags if isinstance(flags, dict) else ():
        if flag.startswith(f"{KEEP_FLAG}="):
            seconds = _seconds(flag, seconds)
    return Retention(seconds, otherwise.payload or KEEP_PAYLOAD_FLAG in flags)


def _seconds(flag: str, otherwise: float) -> float:
    """The number in `py:keep=SECONDS`; a flag that another program got wrong must not fail the job."""
    try:
        seconds = float(flag.partition("=")[2])
    except ValueError:
        return otherwise
    return _rounded(seconds) if 0 < seconds <= MAX_RETENTION.total_seconds() else otherwise
