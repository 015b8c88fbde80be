"""Node's Graphile Worker as the tests drive it: its command line, its library calls, its worker.

Each runs in a process of its own; whatever is still running when a test ends is killed.
"""

from __future__ import annotations

import asyncio
import json
import os
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interop.node_packages import CURRENT, NodePackages
from support.working import PATIENCE

SCRIPTS = Path(__file__).parent / "scripts"


@dataclass(frozen=True)
class Ended:
    """How a process ended and all it printed."""

    status: int
    output: str


class Node:
    """Node's worker for one schema of one database."""

    def __init__(self, packages: NodePackages, url: str, schema: str = "graphile_worker") -> None:
        self.packages = packages
        self.url = url  # Node's driver reads the same URLs, unix sockets included
        self.schema = schema

    async def command(self, *arguments: str, package: str = CURRENT, folder: Path | None = None) -> Ended:
        """`graphile-worker -c URL …`, run to its end in `folder`."""
        script = str(self.packages.command_line(package))
        full = [script, "-c", self.url, "-s", self.schema, *arguments]
        async with self.process(full, folder=folder, stdin=DEVNULL) as process:
            output, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
        assert process.returncode is not None
        return Ended(process.returncode, output.decode())

    async def call(self, *calls: Sequence[Any]) -> list[Any]:
        """Call library functions, each given as `(name, *arguments)`; one result each, rows as objects."""
        async with self.process([str(SCRIPTS / "call.mjs")], stdin=PIPE, stderr=PIPE) as process:
            output, complaints = await asyncio.wait_for(
                process.communicate(json.dumps(calls).encode()), PATIENCE
            )
        assert process.returncode == 0, complaints.decode()
        results: list[Any] = json.loads(output)
        return results

    @asynccontextmanager
    async def worker(self, *tasks: str, **options: Any) -> AsyncIterator[NodeWorker]:
        """A worker with recording tasks of these names, running while the block runs."""
        given = json.dumps({"tasks": tasks, "options": options})
        arguments = [str(SCRIPTS / "work.mjs"), given]
        async with self.process(arguments, stdin=PIPE, stderr=STDOUT) as process:
            worker = NodeWorker(process)
            await worker.wait_for_line("ready")
            yield worker
            await worker.stop()

    @asynccontextmanager
    async def process(
        self, arguments: list[str], *, folder: Path | None = None, stdin: int, stderr: int = STDOUT
    ) -> AsyncIterator[Process]:
        """Node with a script and its arguments, until the block ends."""
        process = await asyncio.create_subprocess_exec(
            self.packages.binary, *arguments, stdin=stdin, stdout=PIPE, stderr=stderr,
            cwd=folder, env=self._environment(),
        )  # fmt: skip
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()  # also closes the pipes

    def _environment(self) -> dict[str, str]:
        return os.environ | {
            "GRAPHILE_WORKER_LIBRARY": self.packages.library.as_uri(),
            "DATABASE_URL": self.url,
            "GRAPHILE_WORKER_SCHEMA": self.schema,
        }


class NodeWorker:
    """A Node worker that is running."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.output: list[str] = []

    async def wait_for_line(self, wanted: str) -> None:
        """Until the worker prints exactly this line."""
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            while True:
                line = (await self._process.stdout.readline()).decode()
                assert line, "the Node worker ended early:\n" + "".join(self.output)
                self.output.append(line)
                if line.strip() == wanted:
                    return

    async def stop(self) -> None:
        """End it gracefully, by closing its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        rest, _ = await asyncio.wait_for(self._process.communicate(), PATIENCE)
        self.output.append(rest.decode())
        assert self._process.returncode == 0, "".join(self.output)
