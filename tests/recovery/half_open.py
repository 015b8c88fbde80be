"""A proxy that leaves the server in the belief that a client is still there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from acceptance.proxy import Link, Proxy


class HalfOpenProxy(Proxy):
    """The end of a client that was made silent is not passed on."""

    async def _pass(self, link: Link, *arguments: Any, is_answer: bool) -> None:
        await super()._pass(link, *arguments, is_answer=is_answer)
        if link.is_silent and not is_answer:
            await asyncio.Event().wait()


@asynccontextmanager
async def half_open_proxy_to(url: str, folder: Path) -> AsyncIterator[tuple[HalfOpenProxy, str]]:
    """Such a proxy on a socket in the folder, and the URL that goes through it."""
    proxy = HalfOpenProxy(url)
    server = await asyncio.start_unix_server(proxy.serve, folder / ".s.PGSQL.5432")
    try:
        yield proxy, proxy.url(folder)
    finally:
        server.close()
        await proxy.close()
