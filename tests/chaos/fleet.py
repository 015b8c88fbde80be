"""The worker processes: one for each mode, each behind a network of its own, replaced when it ends."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from chaos.history import Ending, Worker
from chaos.journal import read_held, read_pools, read_pools_since, read_runs
from chaos.settings import BOUNCER_RETRY, Mode
from chaos.worker_main import NOT_STARTED, WorkerOrder
from support.command_line import clean_environment
from support.network import Network, network_to
from support.pgbouncer import pgbouncer_to
from support.programs import find
from support.working import until

TESTS = Path(__file__).parents[1]
PATIENCE = 60.0  # seconds for a process to start or to end
REPLACED_AFTER = 0.3  # seconds


class Process:
    """One worker process."""

    def __init__(self, name: str, mode: Mode, url: str, folder: Path, options: dict[str, Any]) -> None:
        self.name = name
        self.mode = mode
        self.journal = folder / f"{name}.journal"
        self.log = folder / f"{name}.log"
        self.started = time.monotonic()
        self.ended: float | None = None
        self.was_killed = False
        self.was_asked = False
        order = WorkerOrder(
            f"{url}?application_name={name}" if not mode.is_pooled else url,
            str(self.journal),
            [options | own for own in mode.pools],
            mode.is_pool_given,
            mode.broken,
            mode.clock_ahead,
            mode.has_limits,
        )
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "chaos.worker_main", msgspec.json.encode(order).decode()],
                cwd=folder,
                env=clean_environment(PYTHONPATH=str(TESTS), NO_LOG_SUCCESS="1", PGAPPNAME=name),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the suite, which ends the workers itself
            )

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(number)

    def kill(self) -> None:
        self.was_killed = True
        self.send(signal.SIGKILL)

    def leave(self) -> None:
        """Ask it to shut down gracefully."""
        self.was_asked = True
        self.send(signal.SIGTERM)

    def record(self) -> Worker:
        """What is known of it now."""
        status = self.process.poll()
        ending: Ending = "alive"
        if status is not None:
            was_told: Ending = "left" if self.was_asked else "ended"
            ending = "killed" if self.was_killed else "not started" if status == NOT_STARTED else was_told
        return Worker(
            name=self.name,
            mode=self.mode.name,
            shows_by=self.mode.shows_by,
            pools=read_pools(self.journal),
            started=self.started,
            ended=self.ended,
            ending=ending,
            status=status,
            held=read_held(self.journal),
            slots=self.mode.slots,
        )


class Slot:
    """A place for one process at a time."""

    def __init__(self, mode: Mode, network: Network, url: str, folder: Path, options: dict[str, Any]) -> None:
        self.mode = mode
        self.network = network
        self.processes: list[Process] = []
        self._url = url
        self._folder = folder
        self._options = options

    @property
    def current(self) -> Process:
        return self.processes[-1]

    def start(self) -> None:
        name = f"{self.mode.name}.{len(self.processes) + 1}"
        self.processes.append(Process(name, self.mode, self._url, self._folder, self._options))

    async def keep(self) -> None:
        """Replace the process whenever it has ended."""
        while True:
            process = self.current
            while process.is_running:  # noqa: ASYNC110 - a process tells nobody
                await asyncio.sleep(0.02)
            process.ended = process.ended or time.monotonic()
            await asyncio.sleep(REPLACED_AFTER)
            self.start()


class Fleet:
    """All slots."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self.slots = slots

    @property
    def processes(self) -> list[Process]:
        return [process for slot in self.slots for process in slot.processes]

    async def until_ready(self) -> None:
        """Until the current process of each slot takes jobs."""

        def is_ready() -> bool:
            return all(read_pools(slot.current.journal) for slot in self.slots)

        await until(is_ready, timeout=PATIENCE, every=0.05)

    def is_complete_since(self, moment: float) -> bool:
        """Whether every pool has started a job after this moment."""
        current = [slot.current.journal for slot in self.slots]
        return all(read_pools_since(path, moment) >= set(read_pools(path)) for path in current)

    def runs(self) -> list[Any]:
        return [run for each in self.processes for run in read_runs(each.journal, each.name)]

    def records(self) -> list[Worker]:
        return [process.record() for process in self.processes]

    async def stop(self) -> None:
        """Gracefully, and by force if that takes too long."""
        running = [process for process in self.processes if process.is_running]
        for process in running:
            process.send(signal.SIGCONT)
            process.send(signal.SIGTERM)
        with suppress(TimeoutError):
            await until(lambda: not any(each.is_running for each in running), timeout=15.0, every=0.05)
        for process in self.processes:
            process.kill()
            process.process.wait()


@asynccontextmanager
async def fleet_on(
    url: str, folder: Path, modes: Sequence[Mode], options: dict[str, Any]
) -> AsyncIterator[Fleet]:
    """A process of each mode that is possible here; all are gone at the end."""
    async with AsyncExitStack() as stack:
        slots = []
        pooled_url = ""
        for mode in modes:
            if mode.is_pooled and find("pgbouncer") is None:
                continue
            if mode.is_pooled and not pooled_url:
                more = f"server_login_retry = {BOUNCER_RETRY:g}"
                pooled_url = stack.enter_context(pgbouncer_to(url, more))
            target = pooled_url if mode.is_pooled else url
            network, through = await stack.enter_async_context(network_to(target))
            slots.append(Slot(mode, network, through, folder, options))
        fleet = Fleet(slots)
        keepers: list[asyncio.Task[None]] = []
        try:
            for slot in slots:
                slot.start()
            keepers = [asyncio.ensure_future(slot.keep()) for slot in slots]
            await fleet.until_ready()
            yield fleet
        finally:
            for keeper in keepers:
                keeper.cancel()
            await asyncio.gather(*keepers, return_exceptions=True)
            await fleet.stop()
