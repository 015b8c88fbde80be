"""Systemd: what the service manager said in the environment."""

from __future__ import annotations

import os

VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class Systemd:
    """The address for notifications, and how often the watchdog expects one; false outside of systemd."""

    def __init__(self) -> None:
        # Removed from the environment, so that a command which a task starts does not speak for the worker.
        self.variables = {name: os.environ.pop(name) for name in VARIABLES if name in os.environ}
        """The variables, for a program that replaces this one."""
        self.address = self.variables.get("NOTIFY_SOCKET", "")
        self.process = os.getpid()

    def __bool__(self) -> bool:
        return bool(self.address)

    @property
    def watchdog(self) -> float | None:
        """Seconds after which systemd restarts a silent service; None without a watchdog."""
        microseconds = self.variables.get("WATCHDOG_USEC", "")
        is_ours = self.variables.get("WATCHDOG_PID", str(self.process)) == str(self.process)
        return int(microseconds) / 1e6 if is_ours and microseconds.isdecimal() and int(microseconds) else None
