"""Library calls: their arguments, and results that can be awaited or entered.

`call_options` picks out the options, and `check_names` refuses what a call does not take. `AwaitableContext`
is for calls whose result one may `await`, or enter with `async with`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..errors import ConfigError
from ..hooks import Events, Hooks
from ..values.options import OPTION_NAMES, WorkerOptions
from .resolve import combine
from .settings import SERVE_OPTIONS
from .sources import nearest_name

_SERVE = "serve takes it, and the command `graphile-worker`"
_LOGGING = (
    f"{_SERVE}; otherwise a program sets up logging itself, for example with "
    "graphile_worker.logging.configure_logging"
)
_JOB = "it is for adding a job: add_job, add_jobs and CronItem take it"
_WORKER = "run and run_once take it"
TAKEN_ELSEWHERE = {
    **dict.fromkeys(OPTION_NAMES, _WORKER),
    **dict.fromkeys(("task_list", "crontab", "parsed_cron_items", "extensions"), _WORKER),
    "dependency_overrides": f"{_WORKER}; so does run_jobs",
    **{name: f"{_SERVE} as --{name.replace('_', '-')}" for name in SERVE_OPTIONS},
    **dict.fromkeys(("log_format", "log_level", "log_levels"), _LOGGING),
    "http_port": f"{_SERVE} as --http-port; run takes graphile_worker.contrib.http.HttpPlugin in plugins",
    "app": f"{_WORKER}; so does serve",
    "pg_pool": "a pool belongs to an event loop; make_worker_utils takes it, and run and run_once",
    "once": "call run_once in place of run; serve takes it, and the command `graphile-worker` as --once",
    "schema_only": "call run_migrations, or use the flag --schema-only of the command `graphile-worker`",
    "watch": f"{_SERVE} as --watch",
    "cleanup": "call WorkerUtils.cleanup, or use the command `graphile-worker cleanup`",
    **dict.fromkeys(("job_key", "job_key_mode", "max_attempts", "priority", "queue_name", "run_at"), _JOB),
}
"""Arguments that some other call or command takes, and which one."""


def call_options(
    arguments: Mapping[str, Any],
    *,
    objects: Collection[str],
    options: Collection[str] = OPTION_NAMES,
    app_options: Mapping[str, Any] | None = None,
) -> WorkerOptions:
    """The options of a library call: the values among its arguments over `options=`, or else over the
    configuration and the options of its app.

    `objects` and `options` name what the call takes; anything else is refused.
    """
    check_names(arguments, (*options, *objects))
    values = {name: value for name, value in arguments.items() if name in options}
    return combine(arguments.get("options"), values, app_options)


def check_names(given: Iterable[str], accepted: Collection[str]) -> None:
    """Refuse a name that the call does not take, and say which call takes it or which name was meant."""
    for name in given:
        if name in accepted:
            continue
        if (where := TAKEN_ELSEWHERE.get(name)) is not None:
            raise ConfigError(f"{name}: this is not an option of this call; {where}")
        near = nearest_name(name, accepted)
        hint = f"; did you mean {near!r}?" if near else f"; known options: {', '.join(accepted)}"
        raise ConfigError(f"unknown option {name!r}{hint}")


def call_hooks(arguments: Mapping[str, Any]) -> Hooks:
    """The hooks that a call was given, as `hooks` or as `events`."""
    events: Events | None = arguments.get("events")
    hooks: Hooks | None = arguments.get("hooks")
    if hooks is None:
        return Hooks(events=events)
    if events is not None:
        raise ConfigError("both events and hooks are set; give Hooks(events=...) alone")
    return hooks


T = TypeVar("T")

NOT_OPEN = "; it is not open yet: use `async with … as …`, or `await` it"


class AwaitableContext(Generic[T]):
    """What `run` and `make_worker_utils` return.

    `x = await run(…)` leaves closing to the caller; `async with run(…) as x` closes at the end. Nothing
    happens before that.
    """

    def __init__(self, open_: Callable[[], Awaitable[T]], close: Callable[[T], Awaitable[Any]]) -> None:
        self._open = open_
        self._close = close
        self._opened: list[T] = []

    if not TYPE_CHECKING:  # type checkers know the attributes and report any other name

        def __getattr__(self, name: str) -> Any:
            # Python itself looks for names with underscores in any object.
            hint = "" if name.startswith("_") else NOT_OPEN
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self
            )

    def __await__(self) -> Generator[Any, Any, T]:
        return self._open().__await__()

    async def __aenter__(self) -> T:
        opened = await self._open()
        self._opened.append(opened)
        return opened

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._close(self._opened.pop())
