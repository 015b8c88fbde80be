"""Declares sub-commands: shared flags, settings, and output as JSON or as text.

`command` adds --config and --json, on request --connection and --schema, and passes the settings;
`client_command` adds all of them and passes an open client to a coroutine.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import update_wrapper
from typing import Any

import click
import msgspec

from ...config import Settings
from ...errors import AppLoadError
from ...service.logs import start_logging
from .client import load_settings, run_async, utils_for, with_app
from .output import print_json
from .parameters import CONFIG_OPTION, CONNECTION_OPTION, JSON_OPTION, SCHEMA_OPTION, SHARED_FLAGS


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
    name: str, *, database: bool = False, flags: Mapping[str, str] | None = None, **attributes: Any
) -> Callable[[Callable[..., Output]], click.Command]:
    """A command as a function: `body(settings, **own_parameters) -> Output`.

    `database` adds the flags that name one. `flags` are parameters that set an option; the body gets them
    in the settings.
    """
    shared = [CONNECTION_OPTION, SCHEMA_OPTION] if database else []

    def decorate(body: Callable[..., Output]) -> click.Command:
        @click.pass_context
        def run(ctx: click.Context, /, as_json: bool, **parameters: Any) -> int:
            options = {option: parameters.pop(flag) for flag, option in (flags or {}).items()}
            settings = load_settings(ctx, options)
            start_logging(settings, quiet=True)
            if database:  # the app may name the database or the schema
                settings = _over_app(settings, ctx)
            own = {key: value for key, value in parameters.items() if key not in SHARED_FLAGS}
            return _print(body(settings, **own), as_json=as_json)

        callback: Callable[..., Any] = update_wrapper(run, body)
        for option in reversed([*shared, CONFIG_OPTION, JSON_OPTION]):
            callback = option(callback)
        return click.command(name, cls=click.Command, **attributes)(callback)

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
    audit: str | Callable[..., str] = "",
) -> Callable[[Callable[..., Awaitable[Output]]], click.Command]:
    """A command that uses a client: `async body(utils, **own_parameters) -> Output`.

    `check` gets the same parameters before a connection is opened, to refuse what makes no sense.
    `connections`: how many the client may open. `audit`: what the audit calls it, if it changes something;
    a function gets the parameters, and returns an empty text if nothing is changed.
    """

    def decorate(body: Callable[..., Awaitable[Output]]) -> click.Command:
        def run(settings: Settings, **parameters: Any) -> Output:
            if check is not None:
                check(**parameters)
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
            from .audit import record_command

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
