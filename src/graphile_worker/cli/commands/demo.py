"""`graphile-worker demo`: a temporary database with lively jobs, and the dashboard to look at them."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import signal
import sys
import time
from importlib import import_module

import click

from ...config.settings import AdminOptions
from ...database.embedded import find_binaries
from ...errors import ConfigError, EmbeddedPostgresError
from ...runner.process.signals import end_by_signal, exit_with, forwarded_signals, signal_received
from ...values.schema_name import DEFAULT_SCHEMA
from ..dev.display import listen_nearby
from ..support.client import run_async
from ..support.output import print_json
from ..support.parameters import JSON_OPTION
from .admin import PACKAGES

MISSING = "the demo needs more packages; install them with: pip install 'graphile-worker[embedded,admin]'"
TOUR = """\
The dashboard of a shop and its jobs is at

    {url}

Overview    whether all is well, and if not, since when and why
Failures    in 20 seconds version 1.1 is deployed, and e-mails fail
Queues      invoices are written one at a time, so they wait
Workers     what runs now, and how far it has come
Schedules   the stock is counted every minute

For other commands in another terminal, such as `graphile-worker stats`:

    {export}

Ctrl-C ends the demo and removes everything.
"""


@click.command("demo")
@click.option("--no-browser", is_flag=True, help="Do not open the dashboard in a browser.")
@JSON_OPTION
def demo_command(no_browser: bool, *, as_json: bool) -> int:
    """Show the dashboard with a lively example, which is removed at the end.

    It starts a temporary PostgreSQL, workers, and jobs that run, wait, fail and recur. After 20 seconds a
    deploy breaks the e-mails of the example, and a later one repairs them. No other database is touched.

    \b
    graphile-worker demo
    graphile-worker demo --no-browser
    """
    _check_packages()
    from ...testing import scratch_server

    signal.signal(signal.SIGTERM, exit_with)  # until it is handled, so that the server is stopped
    logger = logging.getLogger("graphile_worker")
    logger.addHandler(logging.NullHandler())  # jobs fail on purpose
    logger.propagate = False
    with scratch_server() as url:
        number = run_async(_demo(url, opens=not no_browser and _has_display(), as_json=as_json))
    return end_by_signal(number)


def _check_packages() -> None:
    try:
        find_binaries()
        import_module("graphile_worker.admin.standalone")
    except EmbeddedPostgresError:
        raise ConfigError(MISSING) from None
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in PACKAGES:
            raise
        raise ConfigError(MISSING) from None


def _has_display() -> bool:
    """Whether a browser could open a window; one for the terminal would hide what we print."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


async def _demo(url: str, *, opens: bool, as_json: bool) -> int:
    """Run the shop and the dashboard until a signal arrives; returns it."""
    from ...admin.standalone import DashboardServer, standalone
    from ..demo.shop import Shop

    def say(text: str) -> None:
        if not as_json:
            click.echo(f"{time.strftime('%H:%M:%S')}  {text}")

    stop = asyncio.create_task(signal_received(forwarded_signals()))
    options = AdminOptions(environment="demo", auth="none")
    host, endpoint = listen_nearby(options)
    with endpoint:
        port = endpoint.getsockname()[1]
        built = standalone(options, host=host, port=port, connection_string=url, schema=DEFAULT_SCHEMA)
        async with Shop(url).open(say) as living:
            serving = asyncio.create_task(DashboardServer(built.app, built.admin).run_on(endpoint))
            try:
                _announce(built.url(host, port), url, opens=opens, as_json=as_json)
                await asyncio.wait((stop, living, serving), return_when=asyncio.FIRST_COMPLETED)
                if not stop.done():
                    await (living if living.done() else serving)  # raises its error
                say("the demo ends")
            finally:
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)
            return await stop


def _announce(dashboard: str, database: str, *, opens: bool, as_json: bool) -> None:
    if as_json:
        print_json({"dashboard": dashboard, "connection_string": database})
    else:
        click.echo(TOUR.format(url=dashboard, export=f"export DATABASE_URL={shlex.quote(database)}"))
    if opens:
        import webbrowser

        asyncio.get_running_loop().run_in_executor(None, webbrowser.open, dashboard)  # some take seconds
