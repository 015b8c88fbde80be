"""JobSpec: what to add, checked when it is built, so that a mistake shows where it was made.

A value that is None means "the default": the task's own, if the spec was made from a task object that has
one, else the database's. Zero is a value. Limits are those of the shared tables.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict, TypeVar, Unpack, get_args, overload

import msgspec

from .errors import InvalidArgumentError

JobKeyMode = Literal["replace", "preserve_run_at", "unsafe_dedupe"]
"""What a second add with the same key does: replace the job, the same but keep its time, or nothing."""
JOB_KEY_MODES: tuple[str, ...] = get_args(JobKeyMode)

MAX_IDENTIFIER_LENGTH = 128
MAX_QUEUE_NAME_LENGTH = 128
MAX_JOB_KEY_LENGTH = 512
SMALLINT_MIN, SMALLINT_MAX = -32768, 32767
MAX_DELAY = timedelta(days=2_900_000)  # keeps run_at before the year 10000, which datetime cannot express

_good_identifiers: set[str] = set()
"""Identifiers that were checked before; the same few are used for every job."""
MAX_REMEMBERED = 1000

P_contra = TypeVar("P_contra", contravariant=True)


class TaskLike(Protocol[P_contra]):
    """A task object: it knows its identifier and what payload it takes.

    It may also have `spec_defaults`, a mapping of option names of JobSpec to values.
    """

    @property
    def identifier(self) -> str: ...

    def spec(self, payload: P_contra, /) -> JobSpec: ...


class JobOptions(TypedDict, total=False):
    """The options of a job besides its task and its payload, as keyword arguments."""

    queue_name: str | None
    run_at: datetime | timedelta | None
    max_attempts: int | None
    job_key: str | None
    job_key_mode: JobKeyMode | None
    priority: int | None
    flags: Collection[str] | None


class _TaskAndPayload(msgspec.Struct, frozen=True):
    """The two values that JobSpec takes by position."""

    identifier: str
    payload: Any = None


class JobSpec(_TaskAndPayload, frozen=True, kw_only=True):
    """A job to be added: `JobSpec("send_email", {"to": "a@example.com"}, job_key="welcome:1")`.

    In place of the identifier a task object may be given; then the payload's type is checked by type
    checkers, and the task's own options apply where none is given here.
    """

    queue_name: str | None = None
    """Jobs with the same queue name run one after the other."""
    run_at: datetime | timedelta | None = None
    """Not before this time, or so long from now by the server's clock."""
    max_attempts: int | None = None
    """Tries in all before the job counts as failed; the database's default is 25."""
    job_key: str | None = None
    """Names the job, so that it can be replaced or removed."""
    job_key_mode: JobKeyMode | None = None
    """What happens to a waiting job with the same key; default: replace."""
    priority: int | None = None
    """Smaller numbers run first; the database's default is 0."""
    flags: Collection[str] | None = None
    """Labels by which a worker can refuse jobs for a time."""

    if TYPE_CHECKING:

        @overload
        def __init__(
            self, identifier: TaskLike[P_contra], payload: P_contra, **options: Unpack[JobOptions]
        ) -> None: ...

        @overload
        def __init__(
            self, identifier: TaskLike[None], payload: None = None, **options: Unpack[JobOptions]
        ) -> None: ...

        @overload
        def __init__(
            self, identifier: str, payload: object = None, **options: Unpack[JobOptions]
        ) -> None: ...

        def __init__(self, identifier: Any, payload: Any = None, **options: Any) -> None: ...

    def __post_init__(self) -> None:
        if type(self.identifier) is not str:
            _take_from_task(self)
        if self.identifier not in _good_identifiers:
            check_name("identifier", self.identifier, MAX_IDENTIFIER_LENGTH)
            if len(_good_identifiers) < MAX_REMEMBERED:
                _good_identifiers.add(self.identifier)
        if self.queue_name is not None:
            check_name("queue_name", self.queue_name, MAX_QUEUE_NAME_LENGTH)
        if self.run_at is not None:
            check_run_at(self.run_at)
        if self.max_attempts is not None:
            check_smallint("max_attempts", self.max_attempts, least=1)
        if self.job_key is not None:
            check_name("job_key", self.job_key, MAX_JOB_KEY_LENGTH)
        if self.job_key_mode is not None and self.job_key_mode not in JOB_KEY_MODES:
            modes = ", ".join(JOB_KEY_MODES)
            raise InvalidArgumentError("job_key_mode", f"expected one of {modes}; got {self.job_key_mode!r}")
        if self.priority is not None:
            check_smallint("priority", self.priority)
        if self.flags is not None:
            check_flags(self.flags)

    def replace(self, **changes: Any) -> JobSpec:
        """A copy with some values changed, checked again."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return JobSpec(**(values | changes))


def check_name(argument: str, value: object, longest: int) -> None:
    """Refuse what is not text of 1 to `longest` characters that PostgreSQL can store."""
    if not isinstance(value, str):
        raise InvalidArgumentError(argument, f"expected text, got {value!r}")
    if not value:
        raise InvalidArgumentError(argument, f"must not be empty (1 to {longest} characters)")
    if len(value) > longest:
        raise InvalidArgumentError(argument, f"has {len(value)} characters; at most {longest} are allowed")
    check_text(argument, value)


def check_text(argument: str, value: str) -> None:
    """Refuse text that PostgreSQL cannot store."""
    if "\0" in value:
        raise InvalidArgumentError(argument, "contains a NUL byte, which PostgreSQL cannot store")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            message = f"contains half a surrogate pair at position {error.start}, which is not valid text"
            raise InvalidArgumentError(argument, message) from None


def check_smallint(argument: str, value: object, *, least: int = SMALLINT_MIN) -> None:
    """Refuse what is not a whole number that fits the column."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgumentError(argument, f"expected a whole number, got {value!r}")
    if not least <= value <= SMALLINT_MAX:
        raise InvalidArgumentError(argument, f"must be from {least} to {SMALLINT_MAX}, got {value}")


def check_run_at(value: object) -> None:
    """Refuse what is neither an aware datetime nor a timedelta."""
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise InvalidArgumentError(
                "run_at",
                f"{value!r} has no time zone; give it one, as in datetime.now(UTC), "
                "or give a timedelta from now",
            )
        try:
            value.astimezone(UTC)
        except OverflowError:
            raise InvalidArgumentError(
                "run_at", f"{value!r} is outside of the years 1 to 9999 in UTC"
            ) from None
    elif isinstance(value, timedelta):
        if abs(value) > MAX_DELAY:
            raise InvalidArgumentError("run_at", f"at most {MAX_DELAY.days} days from now, got {value}")
    else:
        raise InvalidArgumentError(
            "run_at", f"expected a datetime with a time zone or a timedelta, got {value!r}"
        )


def check_flags(value: object) -> None:
    """Refuse what is not a collection of names."""
    if isinstance(value, str) or not isinstance(value, Collection) or isinstance(value, Mapping):
        raise InvalidArgumentError("flags", f"expected a list of names, got {value!r}")
    for flag in value:
        if not isinstance(flag, str):
            raise InvalidArgumentError("flags", f"every flag must be text, got {flag!r}")
        check_text("flags", flag)


def _take_from_task(spec: JobSpec) -> None:
    """Put the task's identifier, and its options where none were given, in place of the task object."""
    task: Any = spec.identifier
    identifier = task if isinstance(task, str) else getattr(task, "identifier", None)
    if not isinstance(identifier, str):
        hint = "; is it decorated with @task?" if callable(task) else ""
        raise InvalidArgumentError("identifier", f"expected a task or its name, got {task!r}{hint}")
    msgspec.structs.force_setattr(spec, "identifier", str(identifier))
    defaults: Mapping[str, Any] = getattr(task, "spec_defaults", None) or {}
    for name, value in defaults.items():
        if getattr(spec, name) is None:
            msgspec.structs.force_setattr(spec, name, value)
