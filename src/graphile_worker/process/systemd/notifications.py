"""Notifications: the messages to systemd, one datagram each."""

from __future__ import annotations

import logging
import os
import socket
import time

from ...values.text import count

logger = logging.getLogger("graphile_worker.systemd")


class Notifications:
    """Sends messages to the socket; a message that cannot be sent is logged, the first time as a warning."""

    def __init__(self, address: str) -> None:
        # "@" stands for the NUL byte of an abstract name.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._shown = address
        self._has_failed = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def ready(self, slots: int, processes: int = 1) -> None:
        """The worker runs jobs."""
        self._send("READY=1", f"MAINPID={os.getpid()}", _status(0, slots, processes))

    def status(self, running: int, slots: int, processes: int = 1) -> None:
        """What the worker does, as `systemctl status` shows it."""
        self._send(_status(running, slots, processes))

    def alive(self) -> None:
        """The event loop turns."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """A shutdown begins."""
        self._send("STOPPING=1", "STATUS=stopping")

    def reloading(self) -> None:
        """The worker stops and starts again in the same process; READY follows."""
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._send("RELOADING=1", f"MONOTONIC_USEC={now}", "STATUS=reloading")

    def _send(self, *lines: str) -> None:
        try:
            self._socket.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            level = logging.DEBUG if self._has_failed else logging.WARNING
            self._has_failed = True
            logger.log(level, "systemd cannot be notified at %s: %s", self._shown, error.strerror or error)


def _status(running: int, slots: int, processes: int) -> str:
    where = f" in {processes} processes" if processes > 1 else ""
    return f"STATUS=running {running} of {count(slots, 'job')}{where}"
