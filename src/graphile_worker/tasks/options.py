"""Options of `@task` that are more than one value: what they take, and what they mean.

- `retry`, `retry_on`, `dont_retry`, `give_up_after` and `on_failure` are about failed attempts.
- `executor`, `lane` and `limit` say where jobs run, and how many at once.
- `queue_name` may be a function of the payload; `queue_concurrency` belongs to it.
- `expires`: jobs that were due too long ago are deleted instead of run. The check is part of the call of such
  a task, so that other tasks have none. A job that says with a flag when it expires is checked by
  `check_job_expiry` instead.
- `timeout` and `on_timeout` are about attempts that take too long.
- `keep` and `keep_payload` are about the history.
- `runbook` and `owner` are what people need when its jobs fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Protocol

import msgspec

from ..errors import ConfigError, InvalidArgumentError, PayloadError
from ..values.attempts import JobDirective, Retry, TimeLimit, check_period, expiry_of
from ..values.concurrency import Limit, unique_limits
from ..values.job import Job, wait_of
from ..values.outcome import FailureHandler
from ..values.retention import Retention, check_keep
from ..values.spec import MAX_IDENTIFIER_LENGTH, check_name, check_queue_concurrency, check_queue_name
from .helpers import JobHelpers
from .signature import is_coroutine_function

FAILURE_OPTIONS = ("retry", "retry_on", "dont_retry", "give_up_after", "on_failure")

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
    given = {name: options[name] for name in FAILURE_OPTIONS if options.get(name) is not None}
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


FLOW_OPTIONS = ("executor", "lane", "limit")


def executor_of(options: Mapping[str, Any]) -> str | None:
    """The executor that `@task(executor=…)` names; None to run in the worker. Raises InvalidArgumentError."""
    return _name(options, "executor", 'expected the name of an executor, such as "process"; got')


def lane_of(options: Mapping[str, Any]) -> str | None:
    """The lane that `@task(lane=…)` names; None for the main lane. Raises InvalidArgumentError."""
    return _name(options, "lane", "expected the name of a lane, got")


def _name(options: Mapping[str, Any], option: str, problem: str) -> str | None:
    name = options.get(option)
    if name is not None and (not isinstance(name, str) or not name.strip()):
        raise InvalidArgumentError(option, f"{problem} {name!r}")
    return name


def limits_of(options: Mapping[str, Any]) -> tuple[Limit, ...]:
    """What `@task(limit=…)` gives, one limit or several, by name. Raises InvalidArgumentError."""
    given = options.get("limit")
    if given is None:
        return ()
    limits = (given,) if isinstance(given, Limit) else given
    if not isinstance(limits, list | tuple) or not all(isinstance(limit, Limit) for limit in limits):
        raise InvalidArgumentError("limit", f"expected a Limit or a list of them, got {given!r}")
    try:
        return tuple(unique_limits(limits))
    except ConfigError as error:
        raise InvalidArgumentError("limit", str(error)) from None


QUEUE_NAME = "queue_name"
QUEUE_CONCURRENCY = "queue_concurrency"
QueueNameFunction = Callable[[Any], str | None]


class PayloadReader(Protocol):
    """The part of a task that a function of the payload needs."""

    @property
    def identifier(self) -> str: ...

    def as_received(self, payload: Any) -> Any:
        """The payload as the task gets it."""


def queue_concurrency_of(options: Mapping[str, Any]) -> int | None:
    """What `@task(queue_concurrency=…)` says; None if it says nothing. Raises InvalidArgumentError."""
    concurrency: int | None = options.get(QUEUE_CONCURRENCY)
    if concurrency is not None:
        check_queue_concurrency(QUEUE_CONCURRENCY, concurrency)
    return concurrency


def check_queue_name_function(function: object) -> None:
    """Reject a function that cannot be called when a job is added."""
    if callable(function) and is_coroutine_function(function):
        raise InvalidArgumentError(QUEUE_NAME, "the function must not be async: it is called in every add")


def queue_names_by(function: QueueNameFunction, task: PayloadReader) -> QueueNameFunction:
    """A function that takes any payload that can be added, and returns the queue of the job."""

    def queue_name_for(payload: object) -> str | None:
        try:
            name = function(task.as_received(payload))
        except PayloadError as error:
            raise InvalidArgumentError("payload", str(error).removeprefix("payload ")) from error
        except Exception as error:
            raise InvalidArgumentError(
                QUEUE_NAME,
                f"the function of the task {task.identifier!r} failed: {type(error).__name__}: {error}",
            ) from error
        if name is not None:
            try:
                check_queue_name(name)
            except InvalidArgumentError as error:
                problem = str(error).removeprefix(f"{QUEUE_NAME}: ")
                message = f"what the function of the task {task.identifier!r} returned: {problem}"
                raise InvalidArgumentError(QUEUE_NAME, message) from None
        return name

    return queue_name_for


EXPIRY_OPTION = "expires"


class JobHasExpired(JobDirective):
    """The job was due too long ago."""

    def __init__(self, waited: float, allowed: float) -> None:
        self.waited = waited
        self.allowed = allowed
        super().__init__(waited, allowed)


def expires_after(options: Mapping[str, Any]) -> float | None:
    """The seconds that `@task(expires=…)` allows; None if it does not say. Raises InvalidArgumentError."""
    value = options.get(EXPIRY_OPTION)
    return None if value is None else check_period(EXPIRY_OPTION, value)


def check_expiry_first(
    invoke: Callable[[Any, JobHelpers], Any], allowed: float
) -> Callable[[Any, JobHelpers], Any]:
    """The same call, but it raises JobHasExpired for a job that waited longer than `allowed`.

    Both times are the database's, so the clock of this machine does not matter.
    """

    def invoke_unless_expired(payload: Any, helpers: JobHelpers) -> Any:
        waited = wait_of(helpers.job)
        if waited > allowed and expiry_of(helpers.job.raw_flags) is None:
            raise JobHasExpired(waited, allowed)
        return invoke(payload, helpers)

    return invoke_unless_expired


def check_job_expiry(job: Job) -> None:
    """Raise JobHasExpired if the job itself says so; both times are the database's."""
    expiry = expiry_of(job.raw_flags)
    if expiry is None or job.raw_locked_at is None:
        return
    waited = wait_of(job)
    allowed = expiry.seconds
    if not expiry.is_relative:
        allowed -= job.raw_locked_at - waited
    if waited > allowed:
        raise JobHasExpired(waited, max(0.0, allowed))


TIMEOUT_OPTIONS = ("timeout", "on_timeout")

CHOICES = ("abandon", "wait")
"""What happens to a task that does not end when its time is up: it is abandoned, or its slot waits."""


def task_time_limit(options: Mapping[str, Any]) -> TimeLimit | None:
    """What the options of `@task` say; None if they say nothing. Raises InvalidArgumentError."""
    timeout, choice = (options.get(name) for name in TIMEOUT_OPTIONS)
    if timeout is None and choice is None:
        return None
    if choice is not None and choice not in CHOICES:
        raise InvalidArgumentError("on_timeout", f"expected one of {', '.join(CHOICES)}; got {choice!r}")
    seconds = None if timeout is None else check_period("timeout", timeout)
    return TimeLimit(seconds, choice == "wait")


KEEP_OPTIONS = ("keep", "keep_payload")


class TaskKeep(msgspec.Struct, frozen=True):
    """What a task says about keeping its finished jobs."""

    keep: bool | timedelta
    payload: bool = False

    def resolved(self, default_seconds: float) -> Retention | None:
        """The same with the worker's retention for `keep=True`; None to keep nothing."""
        if self.keep is False:
            return None
        seconds = default_seconds if self.keep is True else self.keep.total_seconds()
        return Retention(seconds, self.payload)


def task_keep(options: Mapping[str, Any]) -> TaskKeep | None:
    """What the options of `@task` say; None if they say nothing. Raises InvalidArgumentError."""
    keep, payload = (options.get(name) for name in KEEP_OPTIONS)
    if keep is None:
        if payload:
            raise InvalidArgumentError("keep_payload", "has no effect without keep=True or a timedelta")
        return None
    if not isinstance(keep, bool):
        check_keep(keep, "keep")
    return TaskKeep(keep, bool(payload))


CONTACT_OPTIONS = ("runbook", "owner")
MAX_RUNBOOK_LENGTH = 2_000
MAX_OWNER_LENGTH = 200


def runbook_of(options: Mapping[str, Any]) -> str | None:
    """The address that `@task(runbook=…)` gives. Raises InvalidArgumentError."""
    runbook = _text(options, "runbook", MAX_RUNBOOK_LENGTH)
    if runbook is not None and not runbook.startswith(("https://", "http://")):
        raise InvalidArgumentError("runbook", f"expected an http or https address, got {runbook!r}")
    return runbook


def owner_of(options: Mapping[str, Any]) -> str | None:
    """The person or team that `@task(owner=…)` names. Raises InvalidArgumentError."""
    return _text(options, "owner", MAX_OWNER_LENGTH)


def _text(options: Mapping[str, Any], name: str, longest: int) -> str | None:
    value = options.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise InvalidArgumentError(name, f"expected text, got {value!r}")
    if len(value) > longest:
        raise InvalidArgumentError(name, f"must have at most {longest:,} characters")
    return value
