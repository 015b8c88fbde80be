"""The options `timeout` and `on_timeout` of `@task`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..directives import check_period
from ..errors import InvalidArgumentError
from ..time_limit import TimeLimit

OPTIONS = ("timeout", "on_timeout")

CHOICES = ("abandon", "wait")
"""What happens to a task that does not end when its time is up: it is abandoned, or its slot waits."""


def task_time_limit(options: Mapping[str, Any]) -> TimeLimit | None:
    """What the options of `@task` say; None if they say nothing. Raises InvalidArgumentError."""
    timeout, choice = (options.get(name) for name in OPTIONS)
    if timeout is None and choice is None:
        return None
    if choice is not None and choice not in CHOICES:
        raise InvalidArgumentError("on_timeout", f"expected one of {', '.join(CHOICES)}; got {choice!r}")
    seconds = None if timeout is None else check_period("timeout", timeout)
    return TimeLimit(seconds, choice == "wait")
