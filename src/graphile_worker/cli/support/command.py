"""Declares sub-commands: shared flags, settings, output as JSON or as text, and the audit.

- `command` adds --config and --json, on request --connection and --schema, and passes the settings.
- `client_command` adds all of them and passes an open client to a coroutine.
- `given_command` is the command as it was given, for advice to repeat it with more flags.
- `record_command` writes commands that change something to the audit; see `history/audit.py`.
"""

from __future__ import annotations

import getpass
import logging
import os
import shlex
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import update_wrapper
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ...config import Settings
from ...database.connections.connection_text import masked
from ...errors import AppLoadError
from ...runner.process.logs import start_logging
from .client import load_settings, run_async, utils_for, with_app
from .output import print_json
from .parameters import ARGUMENTS, CONFIG_OPTION, CONNECTION_OPTION, JSON_OPTION, SCHEMA_OPTION, SHARED_FLAGS
from .parameters import flags as decorated_by

if TYPE_CHECKING:
    from ...client import WorkerUtils


class Output(msgspec.Struct, frozen=True):
    """What a command prints. `json` returns a value to encode (None prints nothing); `text` prints."""

    json: Callable[[], Any] | None
    text: Callable[[], object]
    notes: Sequence[str] = ()
    """Lines for standard error, below either format."""
    status: int = 0
    jobs: int = 0
    """How many jobs were changed, for the audit."""


def command(
    name: str, *, database: bool = False, flags: Sequence[str] = (), **attributes: Any
) -> Callable[[Callable[..., Output]], click.Command]:
    """A command as a function: `body(settings, **own_parameters) -> Output`.

    `database` adds the flags that name one. `flags` are parameters that set the option of the same name;
    the body gets them in the settings.
    """
    shared = [CONNECTION_OPTION, SCHEMA_OPTION] if database else []

    def decorate(body: Callable[..., Output]) -> click.Command:
        @click.pass_context
        def run(ctx: click.Context, /, as_json: bool, **parameters: Any) -> int:
            options = {name: parameters.pop(name) for name in flags}
            settings = load_settings(ctx, options)
            start_logging(settings, quiet=True)
            if database:  # the app may name the database or the schema
                settings = _over_app(settings, ctx)
            own = {key: value for key, value in parameters.items() if key not in SHARED_FLAGS}
            return _print(body(settings, **own), as_json=as_json)

        with_flags = decorated_by(*shared, CONFIG_OPTION, JSON_OPTION)
        return click.command(name, cls=click.Command, **attributes)(with_flags(update_wrapper(run, body)))

    return decorate


def _over_app(settings: Settings, ctx: click.Context) -> Settings:
    """The settings over those of the app, for a command that can do without the app."""
    try:
        return with_app(settings)[0]
    except AppLoadError as error:
        error.add_note(f'to run this command without the app: graphile-worker --app "" {ctx.info_name}')
        raise


def client_command(
    name: str,
    *,
    check: Callable[..., None] | None = None,
    connections: int = 1,
    audit: str | Mapping[str, str] | Callable[..., str] = "",
) -> Callable[[Callable[..., Awaitable[Output]]], click.Command]:
    """A command that uses a client: `async body(utils, **own_parameters) -> Output`.

    `check` gets the same parameters before a connection is opened, to refuse what makes no sense.
    `connections`: how many the client may open. `audit`: what the audit calls it, if it changes something,
    or what it calls each action that does; a function gets the parameters, and returns an empty text if
    nothing is changed.
    """

    def decorate(body: Callable[..., Awaitable[Output]]) -> click.Command:
        def run(settings: Settings, **parameters: Any) -> Output:
            if check is not None:
                check(**parameters)
            if isinstance(audit, Mapping):
                action = audit.get(parameters["action"], "")
            else:
                action = audit if isinstance(audit, str) else audit(**parameters)
            return run_async(_with_client(settings, body, parameters, connections, action))

        return command(name, database=True)(update_wrapper(run, body))

    return decorate


async def _with_client(
    settings: Settings,
    body: Callable[..., Awaitable[Output]],
    parameters: dict[str, Any],
    connections: int,
    action: str,
) -> Output:
    async with utils_for(settings, connections=connections) as utils:
        output = await body(utils, **parameters)
        if action and output.json is not None and not parameters.get("dry_run"):
            await record_command(utils, action, parameters, jobs=output.jobs)
        return output


def _print(output: Output, *, as_json: bool) -> int:
    if not as_json:
        output.text()
    elif output.json is not None:
        print_json(output.json())
    for note in output.notes:
        click.echo(note, err=True)
    return output.status


CONNECTION_FLAGS = ("-c", "--connection")


def given_command(*more: str) -> str:
    """The command line, ready to paste, with these arguments in addition; passwords are not repeated."""
    arguments: list[str] = click.get_current_context().meta.get(ARGUMENTS, [])
    shown = []
    previous = ""
    for argument in arguments:
        shown.append(masked(argument) if previous in CONNECTION_FLAGS else _masked_flag(argument))
        previous = argument
    return shlex.join(["graphile-worker", *shown, *more])


def _masked_flag(argument: str) -> str:
    """A flag that contains its value: `-cURL` or `--connection=URL`."""
    if argument.startswith("--"):
        name, separator, value = argument.partition("=")
        return f"{name}={masked(value)}" if name == "--connection" and separator else argument
    return f"-c{masked(argument[2:])}" if argument.startswith("-c") and argument != "-c" else argument


logger = logging.getLogger("graphile_worker.audit")


async def record_command(
    utils: WorkerUtils, action: str, parameters: Mapping[str, Any], *, jobs: int = 0
) -> None:
    """Add a row, if the table exists. The change is made by now, so nothing that happens here fails."""
    from ...history.audit import Actor, record

    given = {name: _plain(value) for name, value in parameters.items() if value not in (None, False, (), "")}
    ids = [job_id for job_id in given.get("ids", ()) if isinstance(job_id, int)]
    target = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in given.items() if name != "yes")
    try:
        async with utils.with_pg_client() as connection, connection.transaction():
            await record(
                connection, utils.schema, Actor(user_name(), "command line", socket.gethostname()), action,
                target=target, jobs=jobs, job_ids=ids, details=given,
            )  # fmt: skip
    except Exception as error:
        logger.debug("the command is not in the audit: %s", error)


def user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no name for the number, as in some containers
        return f"uid {os.getuid()}" if hasattr(os, "getuid") else "unknown"


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, str | int | float):
        return value
    return value.isoformat() if isinstance(value, datetime) else str(value)
