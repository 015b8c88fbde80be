"""A worker as a user starts it: the command, in a process of its own, with a log file."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
STOP_WITHIN = 60.0
CRONTAB = """\
* * * * * tick ?id=each_minute&fill=5m
*/2 * * * * tick ?id=second_minute&jobKey=ticking {"every": 2}
* * * * * quick ?id=typed&queue=queue-1 {"to": "someone@example.com", "number": 0}
"""


class Worker:
    """One worker process."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.returncode is not None

    def last_lines(self, count: int = 20) -> str:
        """What it said last."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-count:])

    async def stop(self) -> int:
        """Ask it to end, as an operator does; the status, or that of a kill if it does not."""
        if not self.has_ended:
            self._process.terminate()
        try:
            async with asyncio.timeout(STOP_WITHIN):
                return await self._process.wait()
        except TimeoutError:
            self._process.kill()
            return await self._process.wait()


@asynccontextmanager
async def started_worker(
    name: str, url: str, folder: Path, *, tasks: str, leak: int
) -> AsyncIterator[Worker]:
    """A running worker with the tasks of this module; stopped at the end."""
    crontab = folder / "crontab"
    crontab.write_text(CRONTAB)
    log = folder / f"{name}.log"
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PG", "GRAPHILE_"))}
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "graphile_worker", "-c", url, "-j", "10"),
            *("--tasks", tasks, "--crontab", str(crontab), "--log-level", "warning"),
            cwd=ROOT,
            env=kept | {"SOAK_LEAK": str(leak)},
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C in the terminal is for us; we end it
        )
    worker = Worker(name, process, log)
    try:
        yield worker
    finally:
        await worker.stop()
