"""`serve`: a program that runs a worker, with everything that the command `graphile-worker` offers."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Unpack

from ...config import Settings, resolve_settings
from ...config.calls import check_names
from ...config.settings import SERVE_OPTIONS, ProcessOptions
from ...errors import ConfigError
from ...values.options import OPTION_NAMES
from ..build import OBJECTS, WorkerBuilder
from .dev_database import with_database
from .error_report import reported
from .logs import start_program_logging
from .run_service import Service, run_service
from .signals import ParentProcess, same_program

if TYPE_CHECKING:
    from ...config.settings import ProcessOptionValues
    from ..application import App, Lifespan
    from ..arguments import WorkerArguments

    class ServeArguments(WorkerArguments, ProcessOptionValues, total=False):
        """The arguments of `run` except `pg_pool`, and the options of a process."""


OWN_ARGUMENTS = ("watch", "once", *SERVE_OPTIONS)


def serve(
    app: App | Lifespan | str | None = None,
    /,
    *,
    watch: bool = False,
    once: bool = False,
    **arguments: Unpack[ServeArguments],
) -> NoReturn:
    """Run a worker as this process, as the command `graphile-worker` does, and exit: `serve(task_list=[…])`.

    - `watch`: restart the program when code, crontab or configuration change
    - `once`: run until no job is ready, then exit

    Also takes the [options of a process](process-options.md), such as
    `processes`, `http_port` and `log_format`, and the arguments of `run`, except `pg_pool`. What is not given
    comes from `options` if there is such an object, else from the environment and the configuration file. If
    a log format is set nowhere, logging that the program has set up is kept. Wrong arguments raise an error.
    Later errors are printed in one line, and end the process with the exit status of the command. After a
    signal, the process ends by that signal.
    """
    _check_caller()
    call: dict[str, Any] = {**arguments}
    if app is not None:
        call["app"] = app
    _check_arguments(call, watch=watch, once=once)
    own = {name: _plain(call.pop(name)) for name in SERVE_OPTIONS if name in call}
    call["app"] = _chosen_app(call)
    if "plugins" in call:
        call["plugins"] = tuple(call["plugins"])  # it is read more than once

    def load() -> Settings:
        return _load(call, own, once=once)

    settings = load()
    parent = ParentProcess()
    handler = start_program_logging(settings, has_logger=call.get("logger") is not None)
    if watch and not parent:
        from .watch import run_watched

        sys.exit(reported(lambda: run_watched(same_program(), load, program=sys.argv[0])))
    if settings.worker.connection_string is None:
        settings = with_database(settings)
        call["connection_string"] = settings.worker.connection_string
    service = Service(
        lambda: call, parent, settings.process, grace=settings.worker.grace, once=once, handler=handler
    )
    sys.exit(reported(lambda: run_service(service)))


def _check_caller() -> None:
    if threading.current_thread() is not threading.main_thread():
        raise ConfigError(
            "serve must be called in the main thread, because only that one gets signals; elsewhere, use run"
        )
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigError("serve runs an event loop of its own; in a coroutine, use `async with run(…)` instead")


def _check_arguments(call: dict[str, Any], *, watch: bool, once: bool) -> None:
    check_names(call, (*OPTION_NAMES, *OBJECTS, *OWN_ARGUMENTS))
    if call.get("pg_pool") is not None:
        raise ConfigError(
            "pg_pool: a pool cannot be used in another event loop or process than its own, and serve starts "
            "new ones; give connection_string instead"
        )
    if watch and once:
        raise ConfigError("watch and once cannot be combined")


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def _chosen_app(call: dict[str, Any]) -> Any:
    """The app of the call, else the configured one; an empty name means none, as on the command line."""
    app = call.get("app")
    if app is None and call.get("options") is None:
        app = resolve_settings({}).process.app
    return None if app == "" else app


def _load(call: dict[str, Any], own: dict[str, Any], *, once: bool) -> Settings:
    """The settings as `run` finds them, and those of the process."""
    worker = WorkerBuilder(call, once=once).options  # type: ignore[arg-type]
    if call.get("options") is None:
        found = resolve_settings(own)
        return Settings(worker, found.process, found.places)
    given = {name: value for name, value in own.items() if value is not None}
    return Settings(worker, ProcessOptions(**given), dict.fromkeys(given, "call"))
