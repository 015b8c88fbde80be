"""What a worker tells systemd: that it is ready, that it is alive, that it stops or reloads.

systemd listens to the process that it started: the only worker, or the parent of several worker processes,
which passes on what the observer process says. Without the variable NOTIFY_SOCKET, none of this is imported.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from ...hooks import Hooks
from ...hooks.events import GracefulShutdown, Stopped
from ...hooks.faults import Supervised
from .health import HealthSource, OwnHealth

LONGEST_PAUSE = 10.0  # seconds
START_INTERVAL = 0.2  # seconds, until the worker is ready
ALIVE = "WATCHDOG=1"

logger = logging.getLogger("graphile_worker.systemd")


class Systemd:
    """The socket of the service manager; a message that cannot be sent is logged, at first as a warning."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._shown = variables["NOTIFY_SOCKET"]
        # "@" stands for the NUL byte of an abstract name.
        self._address = f"\0{self._shown[1:]}" if self._shown.startswith("@") else self._shown
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._is_stopping = self._has_failed = False
        self.process = os.getpid()
        period = variables.get("WATCHDOG_USEC", "")
        is_ours = variables.get("WATCHDOG_PID", str(self.process)) == str(self.process)
        self.watchdog = int(period) / 1e6 if is_ours and period.isdecimal() and int(period) else None
        """Seconds after which systemd restarts a silent service; None without a watchdog."""

    def send(self, text: str) -> None:
        """Send a message; after the shutdown has begun, only that the worker is alive."""
        if self._is_stopping and text != ALIVE:
            return
        try:
            self._socket.sendto(text.encode(), self._address)
        except OSError as error:
            level = logging.DEBUG if self._has_failed else logging.WARNING
            self._has_failed = True
            logger.log(level, "systemd cannot be notified at %s: %s", self._shown, error.strerror or error)

    def stopping(self) -> None:
        self.send("STOPPING=1\nSTATUS=stopping")
        self._is_stopping = True

    def reloading(self) -> None:
        """The worker stops and starts again in the same process; READY follows."""
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self.send(f"RELOADING=1\nMONOTONIC_USEC={now}\nSTATUS=reloading")
        self._is_stopping = True


async def notify(systemd: Systemd, send: Callable[[str], None], source: HealthSource) -> None:
    """Tell systemd when the worker processes are ready, and if it has a watchdog, that they are alive.

    The watchdog gets a message three times in its period, unless a process does not answer within the rest of
    it. A process that has not started to work yet does not count.
    """
    pause = LONGEST_PAUSE if systemd.watchdog is None else min(LONGEST_PAUSE, systemd.watchdog / 3)
    is_ready, started = False, set[int]()
    while systemd.watchdog is not None or not is_ready:
        processes = await source.health(2 * pause)
        started |= {process.pid for process in processes if process.pools}
        if systemd.watchdog is not None and not any(
            process.live_problems for process in processes if process.pid in started
        ):
            send(ALIVE)
        if not is_ready and len(processes) >= source.expected:
            is_ready = not any(process.ready_problems for process in processes)
            if is_ready:
                send(f"READY=1\nMAINPID={systemd.process}\nSTATUS=running")
        await asyncio.sleep(pause if is_ready else START_INTERVAL)


class SystemdPlugin(OwnHealth):
    """In a process that is the only worker: notifies from its event loop, so a blocked one is silent."""

    def __init__(self, systemd: Systemd, *, may_reload: Callable[[], bool]) -> None:
        super().__init__()
        self._systemd = systemd
        self._may_reload = may_reload
        self._loop = Supervised(lambda: notify(systemd, systemd.send, self), "systemd")

    def install(self, hooks: Hooks) -> None:
        """Observe the shutdown."""
        hooks.events.on(GracefulShutdown, lambda event: self._stop(event.signal))
        hooks.events.on(Stopped, lambda _: self._stop(None))

    async def open(self) -> None:
        self._loop.start()

    async def close(self) -> None:
        await self._loop.stop()

    def _stop(self, signal_name: str | None) -> None:
        if signal_name == "SIGHUP" and self._may_reload():
            self._systemd.reloading()
        else:
            self._systemd.stopping()


class Relay:
    """In the parent of several worker processes: passes on what the observer process says."""

    def __init__(self, systemd: Systemd) -> None:
        self.systemd = systemd
        self._reading, self._writing = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._reading.setblocking(False)
        self._writing.setblocking(False)

    def fileno(self) -> int:
        """For `select`: whether there is something to pass on."""
        return self._reading.fileno()

    def pass_on(self) -> None:
        """In the parent."""
        with suppress(BlockingIOError):
            while True:
                self.systemd.send(self._reading.recv(4096).decode())

    def send(self, text: str) -> None:
        """In the observer process."""
        with suppress(OSError):  # the parent is gone, or very slow
            self._writing.send(text.encode())
