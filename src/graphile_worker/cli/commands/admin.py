"""`graphile-worker admin`: the dashboard as a program of its own."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
from typing import TYPE_CHECKING, Any

import click

from ...config import Settings
from ...config.settings import AUTH_KINDS, split_address
from ...errors import ConfigError
from ...runner.process.logs import start_logging
from ...runner.process.signals import end_by_signal
from ..support.client import load_settings, utils_for, with_app, with_database
from ..support.output import print_json
from ..support.parameters import (
    APP_OPTION,
    CONFIG_OPTION,
    CONNECTION_OPTION,
    JSON_OPTION,
    SCHEMA_OPTION,
    Parsed,
    as_list,
    as_table,
    several,
)

if TYPE_CHECKING:
    import socket

    from ...admin.standalone import Standalone

PACKAGES = ("starlette", "jinja2", "uvicorn")
OPTIONS = (
    "listen", "auth", "auth_header", "trusted_proxies", "allowed_hosts", "root_path", "read_only",
    "databases", "environment",
)  # fmt: skip
"""Those that have a flag."""
USER_ROLES = ("viewer", "operator", "admin")
MISSING = "the dashboard needs more packages; install them with: pip install 'graphile-worker[admin]'"

logger = logging.getLogger("graphile_worker.admin")


def _pair(text: str) -> tuple[str, str]:
    """`NAME=VALUE`; the value may be a secret, so errors do not quote it."""
    name, sign, value = text.partition("=")
    if not sign or not name.strip() or not value.strip() or "/" in name:
        raise ValueError("expected NAME=URL")
    return name.strip(), value.strip()


@click.group("admin", invoke_without_command=True)
@CONNECTION_OPTION
@SCHEMA_OPTION
@CONFIG_OPTION
@APP_OPTION
@click.option("--listen", metavar="HOST:PORT", help="Address to listen on.  [default: 127.0.0.1:5678]")
@click.option(
    "--auth",
    type=click.Choice(AUTH_KINDS),
    help="How people sign in.  [default: as configured, else token, a link that works once]",
)
@click.option("--no-auth", is_flag=True, help="Let everyone on this machine in; for loopback only.")
@click.option("--auth-header", metavar="NAME", help="Header in which a trusted proxy names the user.")
@several(
    "--trusted-proxy",
    "trusted_proxies",
    "CIDR",
    "Address or network of a proxy whose headers are trusted. Repeatable.",
    callback=as_list,
)
@several(
    "--allowed-host",
    "allowed_hosts",
    "NAME",
    "Host name of the dashboard, if it is not that of this machine's loopback. Repeatable.",
    callback=as_list,
)
@click.option("--root-path", metavar="PATH", help="Path that a proxy strips, such as /jobs.")
@click.option("--read-only", is_flag=True, default=None, help="Change nothing; PostgreSQL enforces it.")
@several(
    "--database",
    "databases",
    "NAME=URL",
    "Show several databases; a parameter ?schema=NAME in the URL names the schema. Repeatable.",
    type=Parsed("pair", _pair),
    callback=as_table,
)
@click.option("--environment", metavar="NAME", help="Name of the environment, shown on every page.")
@click.option("--migrate", is_flag=True, help="Install or upgrade the schema first.")
@click.option("--open", "opens", is_flag=True, help="Open the dashboard in a browser.")
@click.pass_context
def admin_group(
    ctx: click.Context, /, no_auth: bool, auth: str | None, migrate: bool, opens: bool, **given: Any
) -> int:
    """Serve the dashboard and its JSON API.

    Without configured users it listens on this machine only, and prints a link that signs in once.
    It works for databases of Node and Rust workers too, and installs nothing unless you ask for it.

    \b
    graphile-worker admin --open
    graphile-worker admin --read-only --environment staging
    graphile-worker admin --database shop=postgres:///shop --database mail=postgres:///mail
    graphile-worker admin --listen 0.0.0.0:5678 --allowed-host jobs.example.com
    """
    if ctx.invoked_subcommand is not None:
        return 0
    if no_auth and auth not in (None, "none"):
        raise click.UsageError("--no-auth cannot be combined with --auth.", ctx)
    given |= {"auth": "none" if no_auth else auth}
    settings = load_settings(ctx, {f"admin.{name}": given[name] for name in OPTIONS})
    start_logging(settings)
    settings = with_app(settings)[0]
    if not settings.admin.databases:
        settings = with_database(settings)
    elif settings.places.get("connection_string") == "command line":
        raise click.UsageError("Give either --connection or --database.", ctx)
    if migrate and settings.admin.databases:
        raise click.UsageError("--migrate is for one database: use --connection.", ctx)
    endpoint, dashboard = _prepare(ctx, settings)
    with endpoint:
        number = asyncio.run(_serve(settings, dashboard, endpoint, migrate=migrate, opens=opens))
    return end_by_signal(number) if number is not None else 0


@admin_group.command("hash")
@click.option(
    "--role", type=click.Choice(USER_ROLES), help="What the user may do.  [default: the command asks]"
)
@click.argument("user", default="admin")
@JSON_OPTION
def hash_command(user: str, role: str | None, *, as_json: bool) -> int:
    """Print the line for a USER in [admin.users]; asks for the role and the password."""
    from ...admin.security.passwords import hash_password

    if role is None:
        role = click.prompt("Role", type=click.Choice(USER_ROLES), err=True)
    password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    _print_line(user, f"{role}:{hash_password(password)}", as_json=as_json)
    return 0


@admin_group.command("token")
@click.option(
    "--role", type=click.Choice(["viewer", "operator", "admin", "metrics"]), default="viewer",
    show_default=True, help="What the program may do.",
)  # fmt: skip
@click.argument("name")
@JSON_OPTION
def token_command(name: str, role: str, *, as_json: bool) -> int:
    """Make an API token, and print the line for it in [admin.tokens]; the token is shown only now."""
    from ...admin.security.passwords import hash_token, new_token

    token = new_token()
    if not as_json:
        click.echo(f"token: {token}", err=True)
    _print_line(name, f"{role}:{hash_token(token)}", as_json=as_json, token=token)
    return 0


def _print_line(name: str, value: str, *, as_json: bool, **more: str) -> None:
    """A line for the configuration file. JSON and TOML write texts in the same way."""
    if as_json:
        print_json({"name": name, "value": value, **more})
    else:
        click.echo(f"{json.dumps(name, ensure_ascii=False)} = {json.dumps(value)}")


def _prepare(ctx: click.Context, settings: Settings) -> tuple[socket.socket, Standalone]:
    """The socket, and the dashboard for its port."""
    try:
        from ...admin.standalone import RefusedError, listen, standalone
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in PACKAGES:
            raise
        raise ConfigError(MISSING) from None
    host, port = split_address(settings.admin.listen)
    try:
        # Before the socket, so that a dashboard that would be open is refused for that reason.
        standalone(settings.admin, host=host, port=port, **_source(settings))
        endpoint = listen(host, port)
        return endpoint, standalone(
            settings.admin, host=host, port=endpoint.getsockname()[1], **_source(settings)
        )
    except RefusedError as error:
        raise click.UsageError(str(error), ctx) from None


def _source(settings: Settings) -> dict[str, Any]:
    return {"connection_string": settings.worker.connection_string, "schema": settings.worker.schema}


async def _serve(
    settings: Settings, dashboard: Standalone, endpoint: socket.socket, *, migrate: bool, opens: bool
) -> int | None:
    """Serve until a signal arrives; returns it."""
    from ...admin.standalone import DashboardServer

    if migrate:
        async with utils_for(settings) as utils:
            await utils.migrate()
    server = DashboardServer(dashboard.app, dashboard.admin)
    received: list[int] = []

    def receive(number: int) -> None:
        received.append(number)
        server.stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, receive, number)
    announce(dashboard, settings, endpoint.getsockname()[1], opens=opens)
    await server.run_on(endpoint)
    return received[0] if received else None


def announce(dashboard: Standalone, settings: Settings, port: int, *, opens: bool) -> None:
    """Say where the dashboard is. The one-time link is printed and not logged."""
    host = split_address(settings.admin.listen)[0]
    url = dashboard.url(host, port)
    if dashboard.link:
        click.echo(url)
    else:
        logger.info("the dashboard is at %s", url)
    if opens:
        import webbrowser

        webbrowser.open(url)
