"""Declares sub-commands: shared flags, settings, and output as JSON or as text.

`command` adds --config and --json and passes the settings; `database_command` adds --connection and --schema;
`client_command` is for coroutines that get an open client.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import update_wrapper
from typing import TYPE_CHECKING, Any

import click

from ...config import Settings
from .client import database_settings, load_settings, run_async, start_logging, utils_for
from .output import print_json
from .parameters import CONFIG_OPTION, CONNECTION_OPTION, JSON_OPTION, SCHEMA_OPTION, SHARED_FLAGS

if TYPE_CHECKING:
    from ...client import WorkerUtils

Declare = Callable[[Callable[..., "Output"]], click.Command]


@dataclass(frozen=True, slots=True)
class Output:
    """What a command prints. `json` returns a value to encode (None prints nothing); `text` prints."""

    json: Callable[[], Any] | None
    text: Callable[[], object]
    notes: Sequence[str] = ()
    """Lines for standard error, below either format."""
    status: int = 0


def command(name: str, *, flags: Mapping[str, str] | None = None, **attributes: Any) -> Declare:
    """A command without a database: `body(settings, **own_parameters) -> Output`.

    `flags` names parameters that set an option; the body gets them in the settings.
    """
    return _declare(name, load_settings, (CONFIG_OPTION, JSON_OPTION), flags, attributes)


def database_command(name: str, *, flags: Mapping[str, str] | None = None) -> Declare:
    """A command with a database that opens its own connections."""
    shared = (CONNECTION_OPTION, SCHEMA_OPTION, CONFIG_OPTION, JSON_OPTION)
    return _declare(name, database_settings, shared, flags, {})


def client_command(
    name: str, *, check: Callable[..., None] | None = None
) -> Callable[[Callable[..., Awaitable[Output]]], click.Command]:
    """A command that uses a client: `async body(utils, **own_parameters) -> Output`.

    `check` gets the same parameters before a connection is opened, to refuse what makes no sense.
    """

    def decorate(body: Callable[..., Awaitable[Output]]) -> click.Command:
        def run(settings: Settings, **parameters: Any) -> Output:
            if check is not None:
                check(**parameters)
            return run_async(_with_client(settings, body, parameters))

        return database_command(name)(update_wrapper(run, body))

    return decorate


async def _with_client(
    settings: Settings, body: Callable[[WorkerUtils], Awaitable[Output]], parameters: dict[str, Any]
) -> Output:
    async with utils_for(settings) as utils:
        return await body(utils, **parameters)


def _declare(
    name: str,
    load: Callable[[click.Context, dict[str, Any]], Settings],
    shared: Sequence[Callable[[Any], Any]],
    flags: Mapping[str, str] | None,
    attributes: Mapping[str, Any],
) -> Declare:
    def decorate(body: Callable[..., Output]) -> click.Command:
        @click.pass_context
        def run(ctx: click.Context, /, as_json: bool, **parameters: Any) -> int:
            options = {option: parameters.pop(flag) for flag, option in (flags or {}).items()}
            settings = load(ctx, options)
            start_logging(settings, quiet=True)
            own = {key: value for key, value in parameters.items() if key not in SHARED_FLAGS}
            return _print(body(settings, **own), as_json=as_json)

        callback: Callable[..., Any] = update_wrapper(run, body)
        for option in reversed(shared):
            callback = option(callback)
        return click.command(name, cls=click.Command, **attributes)(callback)

    return decorate


def _print(output: Output, *, as_json: bool) -> int:
    if not as_json:
        output.text()
    elif output.json is not None:
        print_json(output.json())
    for note in output.notes:
        click.echo(note, err=True)
    return output.status
