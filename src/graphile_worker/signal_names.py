"""The names of signals, for messages."""

from __future__ import annotations

import signal


def signal_name(number: int) -> str:
    """`SIGTERM`; real-time signals have a place in a range and mostly no name of their own."""
    try:
        return signal.Signals(number).name
    except ValueError:
        first, last = getattr(signal, "SIGRTMIN", 0), getattr(signal, "SIGRTMAX", 0)
        return f"SIGRTMIN+{number - first}" if first < number < last else f"signal {number}"
