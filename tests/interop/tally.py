"""Node workers and ours that drain one table of short jobs, and what each of them has run.

Their tasks do nothing but note the job: a task that queries the database is too slow for held batches.
"""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from graphile_worker import JobHelpers, run
from graphile_worker.hooks import Events
from graphile_worker.hooks.events import PoolJobsFetched
from interop.conftest import SharedDatabase
from interop.node import SCRIPTS, Node
from support.working import PATIENCE

TASK = "short"


class NodeTally:
    """A Node worker that is running."""

    def __init__(self) -> None:
        self.ran: list[int] = []
        self.complaints: list[str] = []
        self.is_ready = asyncio.Event()

    async def read(self, stream: asyncio.StreamReader) -> None:
        """Read its output to the end: it must not wait for a full pipe."""
        async for line in stream:
            text = line.decode().strip()
            if text.isdigit():
                self.ran.append(int(text))
            elif text == "ready":
                self.is_ready.set()
            else:
                self.complaints.append(text)


@asynccontextmanager
async def node_tally(node: Node, **options: Any) -> AsyncIterator[NodeTally]:
    """A Node worker that notes which jobs it has run, while the block runs."""
    given = json.dumps({"task": TASK, "options": options})
    arguments = [str(SCRIPTS / "tally.mjs"), given]
    async with node.process(arguments, stdin=PIPE, stderr=STDOUT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        tally = NodeTally()
        reading = asyncio.create_task(tally.read(process.stdout))
        try:
            async with asyncio.timeout(PATIENCE):
                await tally.is_ready.wait()
            yield tally
            process.stdin.close()
            await asyncio.wait_for(asyncio.gather(reading, process.wait()), PATIENCE)
        finally:
            reading.cancel()
            await asyncio.wait((reading,))  # only one may read at a time
        assert process.returncode == 0, tally.complaints


class OurTally:
    """A worker of ours: what it has run, and how many of these jobs came in held batches."""

    def __init__(self) -> None:
        self.ran: list[int] = []
        self.held = 0
        self.events = Events()
        self.events.on(PoolJobsFetched, self._fetched)

    async def task(self, payload: Any, helpers: JobHelpers) -> None:
        self.ran.append(helpers.job.id)

    def _fetched(self, event: PoolJobsFetched) -> None:
        if event.kind == "held":
            self.held += event.count


@asynccontextmanager
async def our_tally(database: SharedDatabase, **options: Any) -> AsyncIterator[OurTally]:
    """The same for a worker of ours."""
    tally = OurTally()
    async with run(
        connection_string=database.url,
        task_list={TASK: tally.task},
        events=tally.events,
        concurrency=10,
        handle_signals=False,
        **options,
    ):
        yield tally
