"""Task: a function with an identifier, which jobs refer to.

A task stays callable like the function it wraps. It has the default options of its jobs, and knows how to
decode a payload and how to call the function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Literal, Unpack, get_args

import msgspec

from ..errors import InvalidArgumentError, InvalidPayloadError, PayloadError, TaskLoadError
from ..values.attempts import Retry, TimeLimit
from ..values.concurrency import Limit
from ..values.payload import EMPTY, decode_plain, decoder_for, encode, types_that_fit, without_trace
from ..values.payload import MARK as TRACE_MARK
from ..values.spec import (
    MAX_IDENTIFIER_LENGTH,
    JobKeyMode,
    JobOptions,
    JobSpec,
    SharedJobOptions,
    TaskLike,
    check_name,
    check_unique,
)
from .helpers import JobHelpers
from .injection import Injection
from .options import (
    CONTACT_OPTIONS,
    EXPIRY_OPTION,
    FAILURE_OPTIONS,
    FLOW_OPTIONS,
    KEEP_OPTIONS,
    QUEUE_CONCURRENCY,
    QUEUE_NAME,
    TIMEOUT_OPTIONS,
    FailureRules,
    QueueNameFunction,
    TaskKeep,
    check_expiry_first,
    check_queue_name_function,
    executor_of,
    expires_after,
    failure_rules,
    lane_of,
    limits_of,
    owner_of,
    queue_concurrency_of,
    queue_names_by,
    runbook_of,
    task_keep,
    task_time_limit,
)
from .signature import (
    CallSignature,
    load_error,
    name_of,
    place_of,
    read_signature,
    resolve_annotation,
    unresolved,
)

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, TypeVar

    from ..database.connections.connection import BlockingConnection, UserConnection

    P = TypeVar("P", default=Any)
    R = TypeVar("R", default=Any)
    Arguments = ParamSpec("Arguments", default=...)
    Returned = TypeVar("Returned", default=Any)
else:
    from typing import ParamSpec, TypeVar

    P = TypeVar("P")
    R = TypeVar("R")
    Arguments = ParamSpec("Arguments")
    Returned = TypeVar("Returned")

Invoke = Callable[[Any, JobHelpers], Any]


OWN_OPTIONS = (
    *KEEP_OPTIONS,
    *FAILURE_OPTIONS,
    EXPIRY_OPTION,
    *TIMEOUT_OPTIONS,
    *FLOW_OPTIONS,
    QUEUE_CONCURRENCY,
    *CONTACT_OPTIONS,
)
"""Options of the task itself, which are not written into its jobs."""


class TaskOptions(SharedJobOptions, total=False):
    """Options of `@task`: defaults for the jobs of the task, which an add may override, and its own rules."""

    queue_name: str | Callable[[Any], str | None] | None
    """The queue of its jobs, or a function that takes the payload and returns the queue."""
    queue_concurrency: int | None
    """How many jobs of one queue may run at once, if they are jobs of this task; 1 by default."""
    priority: int | None
    job_key_mode: JobKeyMode | None
    retry: Retry | None
    """The delay before each retry; None for the back-off of Graphile Worker."""
    retry_on: type[BaseException] | Collection[type[BaseException]] | None
    """Retry only after these errors; after others the job fails permanently."""
    dont_retry: type[BaseException] | Collection[type[BaseException]] | None
    """After these errors the job fails permanently."""
    give_up_after: float | timedelta | None
    """Do not run a job again when this long has passed since it was added."""
    expires: float | timedelta | None
    """Delete a job instead of running it if it was due longer ago than this."""
    on_timeout: Literal["abandon", "wait"] | None
    """Whether a task that does not end when its time is up is abandoned after the grace, or waited for."""
    on_failure: str | TaskLike[Any, Any] | None
    """Add a job of this task when a job has failed permanently."""
    executor: str | None
    """Run the jobs in this executor: "process", or one that the worker was started with."""
    lane: str | None
    """Run the jobs in this lane of the worker, which has slots of its own."""
    limit: Limit | Sequence[Limit] | None
    """Run no more of the jobs at once, and start no more in a period, in all Python workers."""
    runbook: str | None
    """The address of a page that says what to do when its jobs fail. The dashboard links to it."""
    owner: str | None
    """The person or team that looks after the task. The dashboard shows it."""


class TaskRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the options of `@task` say about all jobs of a task, beside what is written into them."""

    keep: TaskKeep | None = None
    """Whether its finished jobs are kept; None leaves it to the worker."""
    failure_rules: FailureRules | None = None
    """What happens after a failed attempt; None for the default."""
    expires: float | None = None
    """Delete a job that was due longer ago than this many seconds."""
    time_limit: TimeLimit | None = None
    queue_concurrency: int | None = None
    """How many of its jobs in one named queue may run at once."""
    limits: tuple[Limit, ...] = ()
    executor: str | None = None
    """The executor that runs its jobs; None for the event loop or a thread of the worker."""
    lane: str | None = None
    """The lane in which its jobs run; None for the main lane."""


class Task(Generic[P, R, Arguments, Returned]):
    """A task: `Task[Letter, int]` takes a `Letter` as payload, and its jobs have an `int` as result.

    Two more parameters, which annotations can leave out, are the signature of the function, so that a call of
    the task is checked like a call of the function. `Returned` of a coroutine function is a coroutine.
    """

    function: Callable[Arguments, Returned]
    identifier: str
    spec_defaults: Mapping[str, Any]
    """Defaults of JobSpec's options for this task's jobs."""
    rules: TaskRules
    """What its own options say."""
    queue_name_for: QueueNameFunction | None
    """Returns the queue of a job with this payload; None if that does not depend on the payload."""
    runbook: str | None
    """The address of a page that says what to do when its jobs fail."""
    owner: str | None
    """The person or team that looks after it."""
    is_async: bool
    """Whether it is a coroutine function; others run in a thread."""
    path: str | None
    line: int | None
    _takes: int
    """The number of arguments that the function gets: 0, 1 or 2."""
    _injection: Injection | None
    """Fills its keyword-only parameters; None if it has none."""
    _invoke: Invoke
    """Takes payload and helpers, and passes those on that the function takes."""
    _is_named: bool
    """Whether the identifier was passed, rather than taken from the function's name."""
    _fitting: frozenset[type] | None
    """Types of payloads that need no further check; None if every payload fits."""
    _knows_fitting: bool
    _decode: Callable[[str], P]
    """Decodes the JSON text of a payload for the function; PayloadError if it does not match."""

    if TYPE_CHECKING:
        # The arguments of `add_job` after the task, for clients of both kinds; see `client.handle`.

        def _add(
            self, payload: P, *, connection: UserConnection | None = None, **options: Unpack[JobOptions]
        ) -> None: ...

        def _add_blocking(
            self, payload: P, *, connection: BlockingConnection | None = None, **options: Unpack[JobOptions]
        ) -> None: ...
    else:

        def __class_getitem__(cls, arguments):
            given = arguments if isinstance(arguments, tuple) else (arguments,)
            return super().__class_getitem__((*given, *(Any, Any, ..., Any)[len(given) :]))

    def __init__(
        self,
        function: Callable[Arguments, Returned],
        identifier: str | None = None,
        spec_defaults: Mapping[str, Any] | None = None,
        *,
        path: str | None = None,
        module: str | None = None,
        local_names: Mapping[str, Any] | None = None,
    ) -> None:
        signature = read_signature(function)
        functools.update_wrapper(self, function, updated=())
        if module is not None:  # partial and callable objects have the module of their class
            self.__module__ = module
        self.function = function
        self.path, self.line = (path, None) if path is not None else place_of(function)
        self._is_named = identifier is not None
        self.identifier = _checked_identifier(function, identifier)
        self.spec_defaults = _checked_defaults(function, self.identifier, spec_defaults or {})
        self.queue_name_for = None
        if callable(function_of_queue := (spec_defaults or {}).get(QUEUE_NAME)):
            self.queue_name_for = queue_names_by(function_of_queue, self)
        self._check_own_options(spec_defaults or {})
        self.is_async = signature.is_async
        self._takes = signature.takes
        self._injection = _injection(function, signature, local_names)
        self._set_invoke(
            _invoker(function, signature.shape) if self._injection is None else self._injection.invoke()
        )
        self._takes_payload = signature.shape in ("payload", "payload and helpers")
        self._annotation = _resolved_early(function, signature.annotation, local_names)
        self._returns = _resolved_early(function, signature.returns, local_names)
        self._decode = self._decode_first if self._takes_payload else _decode_nothing
        # A function that takes the helpers alone can read any payload from the job.
        self._fitting = None if signature.shape == "helpers" else frozenset()
        self._knows_fitting = False

    def _check_own_options(self, options: Mapping[str, Any]) -> None:
        try:
            self.rules = TaskRules(
                keep=task_keep(options),
                failure_rules=failure_rules(self.identifier, options),
                expires=expires_after(options),
                time_limit=task_time_limit(options),
                queue_concurrency=queue_concurrency_of(options),
                limits=limits_of(options),
                executor=executor_of(options),
                lane=lane_of(options),
            )
            self.runbook = runbook_of(options)
            self.owner = owner_of(options)
        except InvalidArgumentError as error:
            raise load_error(self.function, f"@task of {self.identifier!r}: {error}") from None

    def _set_invoke(self, invoke: Invoke) -> None:
        expires = self.rules.expires
        self._invoke = invoke if expires is None else check_expiry_first(invoke, expires)

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Returned:
        return self.function(*args, **kwargs)

    def spec(self, payload: P, /, **options: Unpack[JobOptions]) -> JobSpec:
        """A job of this task, for `add_jobs`."""
        return JobSpec(self, payload, **options)

    def check_payload(self, payload: object) -> None:
        """Raise InvalidPayloadError if a worker could not pass this payload to the function.

        An instance of the annotated type fits, whatever its fields hold. Anything else is encoded and decoded
        as on its way to the worker.
        """
        if self._fitting is None or type(payload) in self._fitting:
            return
        if not self._knows_fitting:
            self._fitting = self._find_fitting()
            self._knows_fitting = True
            self.check_payload(payload)
            return
        text = encode(payload)
        if self._decode is _decode_nothing:
            if without_trace(text) != EMPTY:
                raise InvalidPayloadError(
                    f"the task {self.identifier!r} takes no payload; {_HOW_TO_TAKE_ONE}"
                )
            return
        try:
            self._decode(text)
        except PayloadError as error:
            problem = str(error).removeprefix("payload ")
            raise InvalidPayloadError(f"{problem} (task {self.identifier!r})") from error

    def as_received(self, payload: object) -> Any:
        """The payload as the function gets it from the worker; plain JSON if it does not take it."""
        text = encode(payload)
        return self._decode(text) if self._takes_payload else msgspec.json.decode(without_trace(text))

    def decode_result(self, raw: str, /) -> R:
        """The kept result of a job, as JSON text, as the type that the function returns.

        PayloadError if it does not fit. Plain JSON values if the function has no annotation for what it
        returns, or one that JSON text cannot be decoded to.
        """
        return self._decode_result(raw)  # type: ignore[no-any-return]

    @functools.cached_property
    def _decode_result(self) -> Callable[[str], Any]:
        try:
            annotation = resolve_annotation(self.function, self._returns)
            return decode_plain if annotation is type(None) else decoder_for(annotation)
        except (NameError, AttributeError, SyntaxError, TypeError, TaskLoadError):
            return decode_plain

    def _find_fitting(self) -> frozenset[type] | None:
        self._prepare()
        if not self._takes_payload:
            return frozenset()
        annotation = self.payload_annotation
        return None if annotation in (Any, object) else types_that_fit(annotation)

    def with_identifier(self, identifier: str) -> Task[P, R, Arguments, Returned]:
        """The same task with another identifier."""
        if identifier == self.identifier:
            return self
        copy: Task[P, R, Arguments, Returned] = Task(
            self.function, identifier, self.spec_defaults, module=self.__module__
        )
        copy.path, copy.line = self.path, self.line
        copy.rules, copy.runbook, copy.owner = self.rules, self.runbook, self.owner
        copy._injection, copy._invoke = self._injection, self._invoke
        copy._annotation, copy._returns = self._annotation, self._returns
        if self.queue_name_for is not None:
            copy.queue_name_for = self.queue_name_for
        return copy

    @property
    def payload_annotation(self) -> Any:
        """The resolved type of the payload; Any is plain JSON. TaskLoadError if a name cannot be resolved."""
        try:
            return resolve_annotation(self.function, self._annotation)
        except (NameError, AttributeError, SyntaxError, TypeError) as error:
            raise unresolved(self.function, self._annotation, error) from error

    @property
    def _place(self) -> str:
        """The function's location: `file:line`, or its repr if that is unknown."""
        if self.path is None:
            return repr(self.function)
        return self.path if self.line is None else f"{self.path}:{self.line}"

    def _prepare(self) -> None:
        """Build the decoder now, so that an unusable annotation fails at start-up."""
        if self._injection is not None:
            self._check_injection(self._injection)
        if not self._takes_payload or self._decode != self._decode_first:
            return
        annotation = self.payload_annotation
        try:
            self._decode = _decoder(annotation)
        except TaskLoadError as error:
            raise load_error(self.function, f"{name_of(self.function)}: {error}") from error

    def _check_injection(self, injection: Injection) -> None:
        try:
            _ = injection.wanted
        except TaskLoadError as error:
            raise load_error(self.function, f"{name_of(self.function)}: {error}") from error
        except (NameError, AttributeError, SyntaxError, TypeError) as error:
            raise load_error(
                self.function,
                f"{name_of(self.function)}: the annotation of a keyword-only parameter cannot be resolved "
                f"({error})",
            ) from error

    def _decode_first(self, raw: str) -> P:
        self._prepare()
        return self._decode(raw)

    def __repr__(self) -> str:
        return f"<Task {self.identifier!r} at {self._place}>"


AnyTask = Task[Any, Any, ..., Any]


def _checked_identifier(function: Any, identifier: str | None) -> str:
    if identifier is None:
        identifier = getattr(function, "__name__", None)
        if identifier is None or identifier == "<lambda>":
            raise load_error(
                function,
                f'{function!r} has no name to use as identifier; write task("name")(function), or pass a '
                "mapping of names to functions",
            )
    try:
        check_name("identifier", identifier, MAX_IDENTIFIER_LENGTH)
    except InvalidArgumentError as error:
        raise load_error(function, str(error)) from None
    return identifier


def _checked_defaults(function: Any, identifier: str, defaults: Mapping[str, Any]) -> Mapping[str, Any]:
    if not defaults:
        return _NO_DEFAULTS
    known = TaskOptions.__annotations__
    for name in defaults:
        if name not in known:
            raise load_error(function, f"@task has no option {name!r}; known: {', '.join(known)}")
    given = {name: value for name, value in defaults.items() if value is not None and name not in OWN_OPTIONS}
    try:
        if callable(given.get(QUEUE_NAME)):
            check_queue_name_function(given.pop(QUEUE_NAME))
        if (unique := given.get("unique")) is not None:
            check_unique(unique)
            _refuse_other_keys(given)
        JobSpec(identifier, **{name: value for name, value in given.items() if name != "unique"})
    except InvalidArgumentError as error:
        raise load_error(function, f"@task of {identifier!r}: {error}") from None
    return MappingProxyType(given)


def _refuse_other_keys(options: Mapping[str, Any]) -> None:
    for name in ("job_key", "job_key_mode"):
        if name in options:
            raise InvalidArgumentError(name, "cannot be combined with unique, which sets the job key")


_NO_DEFAULTS: Mapping[str, Any] = MappingProxyType({})
_HOW_TO_TAKE_ONE = "give its function a parameter for it"


def _resolved_early(function: Any, annotation: Any, local_names: Mapping[str, Any] | None) -> Any:
    """The annotation, resolved with local names while they exist; if that fails, it is resolved later."""
    if local_names is None:
        return annotation
    try:
        return resolve_annotation(function, annotation, local_names)
    except Exception:
        return annotation


def _invoker(function: Callable[..., Any], shape: str) -> Invoke:
    if shape == "nothing":
        return lambda payload, helpers: function()
    if shape == "payload":
        return lambda payload, helpers: function(payload)
    if shape == "helpers":
        return lambda payload, helpers: function(helpers)
    return function


def _injection(
    function: Callable[..., Any], signature: CallSignature, local_names: Mapping[str, Any] | None
) -> Injection | None:
    if not signature.injected:
        return None
    calls: dict[str, Callable[..., Any]] = {
        "nothing": lambda payload, helpers, values: function(**values),
        "payload": lambda payload, helpers, values: function(payload, **values),
        "helpers": lambda payload, helpers, values: function(helpers, **values),
        "payload and helpers": lambda payload, helpers, values: function(payload, helpers, **values),
    }
    names = dict(local_names) if local_names is not None else None
    return Injection(
        function,
        calls[signature.shape],
        signature.injected,
        is_async=signature.is_async,
        resolve=lambda annotation: resolve_annotation(function, annotation, names),
    )


def _decoder(annotation: Any) -> Callable[[str], Any]:
    """Like `decoder_for`, but None in the annotation makes the payload optional.

    A job added without a payload has an empty object, which need not match the rest of the annotation. What
    tracing has added to a payload is hidden from the function.
    """
    if annotation is type(None):
        return _decode_nothing
    decode = decoder_for(annotation)
    if decode is decode_plain:
        return _decode_any
    if type(None) not in get_args(annotation):
        return lambda raw: decode(without_trace(raw) if TRACE_MARK in raw else raw)

    def decode_or_none(raw: str) -> Any:
        raw = without_trace(raw)
        try:
            return decode(raw)
        except PayloadError:
            if raw == EMPTY:
                return None
            raise

    return decode_or_none


_decode_json = msgspec.json.Decoder().decode


def _decode_any(raw: str) -> Any:
    """For payloads without an annotation: the usual case, in one call."""
    if TRACE_MARK in raw:
        raw = without_trace(raw)
    try:
        return _decode_json(raw)
    except msgspec.DecodeError:
        return decode_plain(raw)  # explains the error


def _decode_nothing(raw: str) -> Any:
    """For functions that take no payload."""
    return None
