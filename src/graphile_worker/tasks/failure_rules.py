"""The options of `@task` about failed attempts: retry, retry_on, dont_retry, give_up_after, on_failure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ..directives import check_period
from ..errors import InvalidArgumentError
from ..failure_handler import FailureHandler
from ..retry import Retry
from ..spec import MAX_IDENTIFIER_LENGTH, check_name

OPTIONS = ("retry", "retry_on", "dont_retry", "give_up_after", "on_failure")

Errors = tuple[type[BaseException], ...]


class FailureRules(msgspec.Struct, frozen=True, kw_only=True):
    """What a task says about its failed attempts."""

    retry: Retry | None = None
    retry_on: Errors | None = None
    dont_retry: Errors = ()
    give_up_after: float | None = None
    """Seconds since the job was added."""
    on_failure: FailureHandler | None = None

    def allows_retry(self, errors: Iterable[BaseException]) -> bool:
        """Whether an attempt with these errors is retried."""
        return all(
            (self.retry_on is None or issubclass(kind, self.retry_on))
            and not issubclass(kind, self.dont_retry)
            for kind in map(type, errors)
        )


def failure_rules(identifier: str, options: Mapping[str, Any]) -> FailureRules | None:
    """What the options of `@task` say; None if they say nothing. Raises InvalidArgumentError."""
    given = {name: options[name] for name in OPTIONS if options.get(name) is not None}
    if not given:
        return None
    retry = given.get("retry")
    if retry is not None and not isinstance(retry, Retry):
        raise InvalidArgumentError(
            "retry", f"expected Retry.exponential(), .fixed(), .steps() or Retry(function), got {retry!r}"
        )
    retry_on = given.get("retry_on")
    return FailureRules(
        retry=retry,
        retry_on=None if retry_on is None else _error_types("retry_on", retry_on),
        dont_retry=_error_types("dont_retry", given.get("dont_retry", ())),
        give_up_after=check_period("give_up_after", given["give_up_after"])
        if "give_up_after" in given
        else None,
        on_failure=_handler(identifier, given["on_failure"]) if "on_failure" in given else None,
    )


def _error_types(option: str, value: Any) -> Errors:
    types = (value,) if isinstance(value, type) else tuple(value) if isinstance(value, list | tuple) else None
    if types is None or not all(isinstance(each, type) and issubclass(each, BaseException) for each in types):
        raise InvalidArgumentError(option, f"expected classes of exceptions, got {value!r}")
    return types


def _handler(identifier: str, value: Any) -> FailureHandler:
    name = value if isinstance(value, str) else getattr(value, "identifier", None)
    if not isinstance(name, str):
        raise InvalidArgumentError("on_failure", f"expected a task or its identifier, got {value!r}")
    check_name("on_failure", name, MAX_IDENTIFIER_LENGTH)
    if name == identifier:
        raise InvalidArgumentError("on_failure", "a task cannot handle its own failures; name another task")
    return FailureHandler(
        name, getattr(value, "spec_defaults", None) or {}, getattr(value, "queue_name_for", None)
    )
