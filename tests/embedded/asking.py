"""Small questions to a server under test, and the types of the fixtures here."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import asyncpg

from embedded.participant import Participant
from graphile_worker.database.embedded import EmbeddedPostgres
from support.programs import needed

Embed = Callable[..., EmbeddedPostgres]
Participate = Callable[..., Participant]


async def query(url: str, statement: str) -> object:
    """The single value that a statement returns."""
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


def postmaster(data_dir: Path) -> int:
    """The process number of the server in this folder."""
    return int((data_dir / "cluster" / "postmaster.pid").read_text().split()[0])


def keepers(process: int) -> list[int]:
    """The process numbers of the keepers that this process has started."""
    found = subprocess.run(
        [needed("pgrep"), "-P", str(process), "-f", "graphile-worker-keeper"], capture_output=True, text=True
    )
    return [int(number) for number in found.stdout.split()]
