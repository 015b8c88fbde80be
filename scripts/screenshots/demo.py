"""Three pictures of `graphile-worker demo` while e-mails fail, for the README."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

COMMAND = (sys.executable, "-m", "graphile_worker", "demo", "--no-browser", "--json")
AFTER = 140  # seconds, of which e-mails fail for two minutes
DEMO_SIZE = {"width": 1180, "height": 680}
TASK = "send_email"
INSTALLED = "/srv/shop/lib/python3.12/site-packages"
RENAME = """
([ours, theirs]) => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(ours, theirs);
}
"""
"""Shows files of this checkout as those of a user are shown."""


@asynccontextmanager
async def running_demo() -> AsyncIterator[str]:
    """The address of its dashboard."""
    process = await asyncio.create_subprocess_exec(*COMMAND, stdout=asyncio.subprocess.PIPE)
    try:
        first_line = await process.stdout.readline() if process.stdout is not None else b"{}"
        yield json.loads(first_line)["dashboard"]
    finally:
        process.terminate()
        await process.wait()


async def demo_pages(address: str) -> dict[str, str]:
    """Name and address of each page that is shown, when there is something to see."""
    await asyncio.sleep(AFTER)
    async with httpx.AsyncClient(base_url=address) as client:
        failures = (await client.get("/api/v1/failures")).json()["items"]
    (emails,) = [each for each in failures if each["task_identifier"] == TASK]
    return {
        "demo-overview": "/",
        "demo-failure": f"/failures/{emails['fingerprint']}",
        "demo-queue": "/queue?name=invoices",
    }
