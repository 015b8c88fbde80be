"""The names of signals, for messages."""

from __future__ import annotations

import signal


def signal_name(number: int) -> str:
    """`SIGTERM`; a real-time signal without a name is `SIGRTMIN+n`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        first, last = getattr(signal, "SIGRTMIN", 0), getattr(signal, "SIGRTMAX", 0)
        return f"SIGRTMIN+{number - first}" if first < number < last else f"signal {number}"
