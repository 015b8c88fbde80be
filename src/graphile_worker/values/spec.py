"""JobSpec: a job to add, validated when it is built, so that an error points at the code that made it.

None means the default: the task's own, if the spec was built from a task object that has one, else the
database's. Zero is a value. Limits are those of the shared tables.

`Unique` means at most one job of a task with the same arguments, by a job key that is derived from them. The
key is `u:` and a digest of the task identifier and the arguments. The unique index on job keys makes it hold
for jobs that any runtime added.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    ParamSpec,
    Protocol,
    Self,
    TypedDict,
    TypeVar,
    Unpack,
    get_args,
    overload,
)

import msgspec

from ..errors import InvalidArgumentError
from .job import TAG_FLAG
from .payload import NAME as TRACE
from .payload import encode, without_trace

JobKeyMode = Literal["replace", "preserve_run_at", "unsafe_dedupe"]
"""What a second add with the same key does: replace the job, replace all but its run_at, or nothing."""
JOB_KEY_MODES: tuple[str, ...] = get_args(JobKeyMode)

MAX_IDENTIFIER_LENGTH = 128
MAX_QUEUE_NAME_LENGTH = 128
MAX_JOB_KEY_LENGTH = 512
MAX_TAG_LENGTH = 100
MAX_QUEUE_CONCURRENCY = 1000
SMALLINT_MIN, SMALLINT_MAX = -32768, 32767
DEFAULT_PRIORITY = 0  # as the shared tables have it
DEFAULT_MAX_ATTEMPTS = 25
MAX_DELAY = timedelta(days=2_900_000)  # keeps run_at before the year 10000, which datetime cannot express

_valid_identifiers: set[str] = set()
"""Task identifiers that have passed the check; a program uses the same few for all its jobs."""
MAX_CACHED = 1000

P_contra = TypeVar("P_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)
Arguments = ParamSpec("Arguments")


class TaskLike(Protocol[P_contra, R_co]):
    """A task object: its identifier, the type of its payload, and the type of what it returns.

    It may also have `spec_defaults`, a mapping of JobSpec's option names to values; `check_payload`, which
    raises for a payload that the task cannot take; and `queue_name_for`, which returns the queue of a job
    with a payload.
    """

    @property
    def identifier(self) -> str: ...

    def spec(self, payload: P_contra, /, **options: Unpack[JobOptions]) -> JobSpec: ...

    def decode_result(self, raw: str, /) -> R_co: ...


class TaskArguments(Protocol[Arguments, R_co]):
    """A task object by the arguments of its `spec`.

    A parameter of this type tells a type checker what may follow the task, before it looks at the payload.
    So the message about a wrong payload says which type was expected.
    """

    def spec(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> JobSpec: ...

    def decode_result(self, raw: str, /) -> R_co: ...


class SharedJobOptions(TypedDict, total=False):
    """Options that mean the same for one job, for all jobs of a task, and for those of a recurring job."""

    max_attempts: int | None
    job_key: str | None
    unique: Unique | None
    tags: Collection[str] | None
    flags: Collection[str] | None
    timeout: float | timedelta | None
    keep: bool | timedelta | None
    keep_payload: bool | None


class JobOptions(SharedJobOptions, total=False):
    """The options of a job besides task and payload, as keyword arguments."""

    queue_name: str | None
    run_at: datetime | timedelta | None
    priority: int | None
    expires: datetime | timedelta | None
    job_key_mode: JobKeyMode | None


class _TaskAndPayload(msgspec.Struct, frozen=True):
    """The two positional fields of JobSpec."""

    task_identifier: str
    payload: Any = None


class JobSpec(_TaskAndPayload, frozen=True, kw_only=True):
    """A job to add: `JobSpec("send_email", {"to": "a@example.com"}, job_key="welcome:1")`.

    A task object may take the place of the task identifier. Then the payload is checked, here and by type
    checkers, and the task's own options fill in what is not given here.
    """

    queue_name: str | None = None
    """Jobs of one queue run one after another."""
    run_at: datetime | timedelta | None = None
    """The earliest start: a time, or a delay from now by the server's clock."""
    expires: datetime | timedelta | None = None
    """Delete the job instead of running it: after this time, or this long after it could run."""
    max_attempts: int | None = None
    """Attempts before the job fails permanently; the database's default is 25."""
    job_key: str | None = None
    """A unique name, by which the job can be replaced or removed."""
    job_key_mode: JobKeyMode | None = None
    """What happens to a waiting job with the same key; default: replace."""
    priority: int | None = None
    """Lower numbers run first; the database's default is 0."""
    flags: Collection[str] | None = None
    """Labels; a worker skips jobs with a forbidden flag."""
    keep: bool | timedelta | None = None
    """Keep the finished job and its result, for the worker's retention or this long."""
    keep_payload: bool | None = None
    """Keep the payload with it."""
    timeout: float | timedelta | None = None
    """How long one attempt may run: seconds or a timedelta; default: what the task says."""
    unique: Unique | None = None
    """Add nothing while there is a job with the same arguments; sets the job key."""
    tags: Collection[str] | None = None
    """Labels to search for, to count and to show."""

    if TYPE_CHECKING:

        @overload
        def __init__(
            self, task_identifier: str, payload: object = None, **options: Unpack[JobOptions]
        ) -> None: ...

        @overload
        def __init__(
            self, task_identifier: TaskLike[None, Any], payload: None = None, **options: Unpack[JobOptions]
        ) -> None: ...

        @overload
        def __init__(
            self,
            task_identifier: TaskArguments[Arguments, Any],
            *args: Arguments.args,
            **kwargs: Arguments.kwargs,
        ) -> None: ...

        def __init__(self, *args: Any, **options: Any) -> None: ...

    def __post_init__(self) -> None:
        if type(self.task_identifier) is not str:
            _take_from_task(self)
        if self.task_identifier not in _valid_identifiers:
            check_name("task_identifier", self.task_identifier, MAX_IDENTIFIER_LENGTH)
            if len(_valid_identifiers) < MAX_CACHED:
                _valid_identifiers.add(self.task_identifier)
        if self.queue_name is not None:
            check_queue_name(self.queue_name)
        if self.run_at is not None:
            check_run_at(self.run_at)
        if self.max_attempts is not None:
            check_smallint("max_attempts", self.max_attempts, least=1)
        if self.unique is not None:
            _set_unique_key(self, self.unique)
        if self.job_key is not None:
            check_name("job_key", self.job_key, MAX_JOB_KEY_LENGTH)
        if self.job_key_mode is not None:
            check_job_key_mode(self.job_key_mode)
        if self.priority is not None:
            check_smallint("priority", self.priority)
        if self.flags is not None:
            check_flags(self.flags)
        if self.expires is not None:
            _add_expiry_flag(self, self.expires)
        if self.keep is not None:
            _add_keep_flags(self, self.keep)
        if self.timeout is not None:
            _add_timeout_flag(self, self.timeout)
        if self.tags is not None:
            _add_tag_flags(self, self.tags)

    def replace(self, **changes: Any) -> Self:
        """A validated copy with some values changed."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return type(self)(**(values | changes))

    def _with_json(self, payload: str) -> Self:
        """A copy with this JSON text as payload, which is not checked again."""
        same = copy(self)
        msgspec.structs.force_setattr(same, "payload", msgspec.Raw(payload))
        return same


class CronJob(JobSpec, frozen=True, kw_only=True):
    """A recurring job that is due: the spec of the job to add, and the cron item it comes from."""

    identifier: str
    """The identifier of the cron item, not of the task."""

    if TYPE_CHECKING:

        def __init__(
            self,
            task_identifier: str,
            payload: object = None,
            *,
            identifier: str,
            **options: Unpack[JobOptions],
        ) -> None: ...

    def with_spec(self, spec: JobSpec) -> CronJob:
        """The job that `spec` describes, for the same cron item."""
        if isinstance(spec, CronJob) and spec.identifier == self.identifier:
            return spec
        values = {name: getattr(spec, name) for name in JobSpec.__struct_fields__}
        return CronJob(**values, identifier=self.identifier)


_NAMES_ELSEWHERE = {
    **dict.fromkeys(("countdown", "delay", "eta", "schedule_in", "schedule_at", "at"), "run_at"),
    **dict.fromkeys(("retries", "max_retries", "max_tries", "retry"), "max_attempts"),
    **dict.fromkeys(("queue", "lock"), "queue_name"),
    **dict.fromkeys(("key", "job_id", "task_id", "queueing_lock"), "job_key"),
    **dict.fromkeys(("time_limit", "soft_time_limit", "job_timeout", "execution_timeout"), "timeout"),
}
"""Options of other job queues, and ours for the same purpose."""


def refuse_unknown_options(options: Mapping[str, Any], error: TypeError) -> None:
    """Raise an error that suggests an option, if `error` is due to one that does not exist."""
    from .text import closest  # only errors need it

    known = [*JobOptions.__annotations__, "connection"]
    for name in options:
        if name not in known:
            near = _NAMES_ELSEWHERE.get(name) or closest(name, known)
            hint = f"; did you mean {near!r}?" if near else ""
            raise TypeError(f"add_job() got an unexpected keyword argument {name!r}{hint}") from error


def check_name(argument: str, value: object, max_length: int) -> None:
    """Reject anything but text of 1 to `max_length` characters that PostgreSQL can store."""
    if not isinstance(value, str):
        raise InvalidArgumentError(argument, f"expected text, got {value!r}")
    if not value:
        raise InvalidArgumentError(argument, f"must not be empty (1 to {max_length} characters)")
    if len(value) > max_length:
        raise InvalidArgumentError(argument, f"has {len(value)} characters; at most {max_length} are allowed")
    check_text(argument, value)


def check_queue_name(value: object) -> None:
    """Reject what is no name, or the name of a track, which belongs to a wide queue."""
    check_name("queue_name", value, MAX_QUEUE_NAME_LENGTH)
    if isinstance(value, str) and value[-1] == "]" and is_track_name(value):
        raise InvalidArgumentError(
            "queue_name", f"{value!r} ends in a number in brackets, which is reserved for tracks of queues"
        )


def is_track_name(name: str) -> bool:
    """Whether this is the name of a further row of a wide queue, such as `tenant:7 [2]`."""
    home, _, number = name.removesuffix("]").rpartition(" [")
    return bool(home) and name[-1] == "]" and number.isascii() and number.isdigit() and number[0] != "0"


def home_name(name: str) -> str:
    """The name of the queue that a row belongs to: `tenant:7` for `tenant:7 [2]`."""
    return name[: name.rindex(" [")] if is_track_name(name) else name


def check_queue_concurrency(argument: str, concurrency: object) -> None:
    """Reject anything but a whole number of jobs."""
    if isinstance(concurrency, bool) or not isinstance(concurrency, int):
        raise InvalidArgumentError(argument, f"expected a whole number, got {concurrency!r}")
    if not 1 <= concurrency <= MAX_QUEUE_CONCURRENCY:
        raise InvalidArgumentError(argument, f"must be from 1 to {MAX_QUEUE_CONCURRENCY}, got {concurrency}")


def check_text(argument: str, value: str) -> None:
    """Reject text that PostgreSQL cannot store."""
    if "\0" in value:
        raise InvalidArgumentError(argument, "contains a NUL byte, which PostgreSQL cannot store")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            message = f"contains half a surrogate pair at position {error.start}, which is not valid text"
            raise InvalidArgumentError(argument, message) from None


def check_smallint(argument: str, value: object, *, least: int = SMALLINT_MIN) -> None:
    """Reject anything but an integer that fits the column."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgumentError(argument, f"expected a whole number, got {value!r}")
    if not least <= value <= SMALLINT_MAX:
        raise InvalidArgumentError(argument, f"must be from {least} to {SMALLINT_MAX}, got {value}")


def check_job_key_mode(value: object, allowed: Collection[str] = JOB_KEY_MODES) -> None:
    """Reject an unknown mode."""
    if value not in allowed:
        raise InvalidArgumentError("job_key_mode", f"expected one of {', '.join(allowed)}; got {value!r}")


def check_run_at(value: object) -> None:
    """Reject anything but an aware datetime or a timedelta."""
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
    """Reject anything but a collection of names."""
    _check_names("flags", "flag", value)


def _check_names(argument: str, noun: str, value: object) -> None:
    if isinstance(value, str) or not isinstance(value, Collection) or isinstance(value, Mapping):
        raise InvalidArgumentError(argument, f"expected a list of names, got {value!r}")
    for name in value:
        if not isinstance(name, str):
            raise InvalidArgumentError(argument, f"every {noun} must be text, got {name!r}")
        check_text(argument, name)


def _add_expiry_flag(spec: JobSpec, expires: datetime | timedelta) -> None:
    from .attempts import EXPIRES_FLAG, expiry_flag

    others = [flag for flag in spec.flags or () if not flag.startswith(EXPIRES_FLAG)]
    msgspec.structs.force_setattr(spec, "flags", (*others, expiry_flag(expires)))


def _add_keep_flags(spec: JobSpec, keep: bool | timedelta) -> None:
    """Say with flags how the job is kept: the row has no other place for it."""
    from .retention import keep_flags

    flags = dict.fromkeys((*(spec.flags or ()), *keep_flags(keep, payload=bool(spec.keep_payload))))
    if flags:
        msgspec.structs.force_setattr(spec, "flags", tuple(flags))


def _add_timeout_flag(spec: JobSpec, timeout: float | timedelta) -> None:
    from .attempts import TIMEOUT_FLAG, timeout_flag

    others = (flag for flag in spec.flags or () if not flag.startswith(TIMEOUT_FLAG))
    msgspec.structs.force_setattr(spec, "flags", (*others, timeout_flag(timeout)))


def _add_tag_flags(spec: JobSpec, tags: Collection[str]) -> None:
    """Say with flags which tags the job has."""
    _check_names("tags", "tag", tags)
    for tag in tags:
        check_name("tags", tag, MAX_TAG_LENGTH)
    others = [flag for flag in spec.flags or () if not flag.startswith(TAG_FLAG)]
    flags = dict.fromkeys((*others, *(TAG_FLAG + tag for tag in tags)))
    msgspec.structs.force_setattr(spec, "flags", tuple(flags) or None)


def _set_unique_key(spec: JobSpec, unique: Unique) -> None:
    check_unique(unique)
    if spec.job_key is not None and not spec.job_key.startswith(KEY_PREFIX):
        raise InvalidArgumentError("job_key", "a job that is unique by its arguments has no other key")
    if spec.job_key_mode is not None:
        raise InvalidArgumentError("job_key_mode", "has no effect on a job that is unique by its arguments")
    key = unique.job_key(spec.task_identifier, spec.payload)
    msgspec.structs.force_setattr(spec, "job_key", key)


def _take_from_task(spec: JobSpec) -> None:
    """Replace the task object by its identifier, check the payload, and fill in options not given."""
    task: Any = spec.task_identifier
    identifier = task if isinstance(task, str) else getattr(task, "identifier", None)
    if not isinstance(identifier, str):
        hint = "; is it decorated with @task?" if callable(task) else ""
        raise InvalidArgumentError(
            "task_identifier", f"expected a task or its identifier, got {task!r}{hint}"
        )
    msgspec.structs.force_setattr(spec, "task_identifier", str(identifier))
    check_payload = getattr(task, "check_payload", None)
    if check_payload is not None:
        check_payload(spec.payload)
    queue_name_for = getattr(task, "queue_name_for", None)
    if queue_name_for is not None and spec.queue_name is None:
        msgspec.structs.force_setattr(spec, "queue_name", queue_name_for(spec.payload))
    defaults: Mapping[str, Any] = getattr(task, "spec_defaults", None) or {}
    for name, value in defaults.items():
        if getattr(spec, name) is None:
            msgspec.structs.force_setattr(spec, name, value)


KEY_PREFIX = "u:"
DIGEST_CHARACTERS = 40
MARKS = ("_cron", TRACE)
"""Members that cron and tracing add to payloads; they say nothing about the arguments."""

While = Literal["waiting", "waiting or running"]
WHILES: tuple[str, ...] = get_args(While)


class Unique(msgspec.Struct, frozen=True, kw_only=True):
    """At most one job with the same arguments: `@task(unique=Unique(fields=("user_id",)))`.

    While such a job exists, an add returns it and adds nothing. A job that has failed permanently does not
    count; the next add takes its place.
    """

    fields: Sequence[str] = ()
    """The members of the payload that count, by their names in JSON; the whole payload without any."""
    while_: Literal["waiting", "waiting or running"] = "waiting or running"
    """Whether a running job counts too. If not, it is not retried once another job is added."""

    def __post_init__(self) -> None:
        fields: Any = self.fields
        if isinstance(fields, str) or not isinstance(fields, Sequence):
            raise InvalidArgumentError("unique.fields", f"expected a list of names, got {fields!r}")
        for name in fields:
            if not isinstance(name, str):
                raise InvalidArgumentError("unique.fields", f"every name must be text, got {name!r}")
        if self.while_ not in WHILES:
            raise InvalidArgumentError(
                "unique.while_", f"expected one of {', '.join(map(repr, WHILES))}; got {self.while_!r}"
            )
        msgspec.structs.force_setattr(self, "fields", tuple(fields))

    def job_key(self, task_identifier: str, payload: object) -> str:
        """The key of a job with this payload."""
        arguments = msgspec.json.decode(without_trace(encode(payload)))
        if not self.fields and isinstance(arguments, dict):
            arguments = {name: value for name, value in arguments.items() if name not in MARKS}
        elif self.fields:
            arguments = [[name, self._member(arguments, name)] for name in sorted(set(self.fields))]
        text = msgspec.json.encode([task_identifier, arguments], order="sorted")
        return KEY_PREFIX + sha256(text).hexdigest()[:DIGEST_CHARACTERS]

    def _member(self, arguments: Any, name: str) -> Any:
        if not isinstance(arguments, dict) or name not in arguments:
            raise InvalidArgumentError(
                "unique.fields", f"the payload has no member {name!r}, which makes the job unique"
            )
        return arguments[name]


def check_unique(value: object) -> None:
    """Reject anything but a Unique."""
    if not isinstance(value, Unique):
        raise InvalidArgumentError(
            "unique", f'expected Unique, as in unique=Unique(fields=("user_id",)), got {value!r}'
        )
