"""The dashboard of `dev`: served beside the worker if its packages are installed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from ...config.admin_options import AdminOptions, split_address
from ...error_text import message_of
from ...errors import ConfigError
from .display import Display

if TYPE_CHECKING:
    import socket

logger = logging.getLogger("graphile_worker.dev")


@asynccontextmanager
async def dev_dashboard(url: str, schema: str, display: Display) -> AsyncIterator[None]:
    """Serve the dashboard of a database while the block runs. What fails here does not stop the worker."""
    serving = asyncio.create_task(_serve(url, schema, display), name="dashboard")
    try:
        yield
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def _serve(url: str, schema: str, display: Display) -> None:
    try:
        await asyncio.to_thread(import_module, "graphile_worker.admin.server")
        await asyncio.to_thread(import_module, "graphile_worker.admin.standalone")
    except ModuleNotFoundError as error:
        logger.debug("no dashboard: %s", message_of(error))
        return
    from ...admin.server import DashboardServer
    from ...admin.standalone import standalone

    options = AdminOptions(environment="development", auth="token")
    try:
        host, endpoint = _listen(options)
    except ConfigError as error:
        logger.warning("no dashboard: %s", message_of(error))
        return
    with endpoint:
        port = endpoint.getsockname()[1]
        built = standalone(options, host=host, port=port, connection_string=url, schema=schema)
        display.show_dashboard(built.url(host, port))
        await DashboardServer(built.app, built.admin).run_on(endpoint)


def _listen(options: AdminOptions) -> tuple[str, socket.socket]:
    """A socket on the usual port, or on a free one if another dashboard has it."""
    from ...admin.server import listen

    host, port = split_address(options.listen)
    try:
        return host, listen(host, port)
    except ConfigError:
        return host, listen(host, 0)
