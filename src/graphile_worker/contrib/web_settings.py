"""Options in the settings of a web application, and our commands as a group of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from ..config.calls import check_names
from ..config.sources import PREFIX
from ..values.options import CLIENT_OPTIONS, WorkerOptions

if TYPE_CHECKING:
    import click


def options_in(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The options among the settings of an application: `GRAPHILE_WORKER_SCHEMA` is `schema`."""
    found = {
        name.removeprefix(PREFIX).lower(): value
        for name, value in settings.items()
        if name.startswith(PREFIX) and value is not None
    }
    check_names(found, WorkerOptions.__struct_fields__)
    return found


def client_arguments(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the options that a client takes."""
    return {name: value for name, value in options.items() if name in (*CLIENT_OPTIONS, "plugins")}


def _as_text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def worker_command(options: Mapping[str, Any]) -> click.Command:
    """The command `graphile-worker` as a sub-command, with these options of the application."""
    import click

    @click.command(
        "graphile-worker",
        context_settings={
            "ignore_unknown_options": True,
            "allow_interspersed_args": False,
            "help_option_names": [],
        },
        help="Run a worker, or a command such as list, stats or doctor; see `graphile-worker --help`.",
    )
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def command(arguments: tuple[str, ...]) -> None:
        from ..cli.main import run_main

        # As environment variables, which child processes read too.
        os.environ.update({f"{PREFIX}{name.upper()}": _as_text(value) for name, value in options.items()})
        raise SystemExit(run_main(list(arguments)))

    return command
