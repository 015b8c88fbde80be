"""The child's end of the line to its parent: when the parent is gone, the worker stops gracefully."""

from __future__ import annotations

import os
import signal
import threading

PARENT_PIPE = "_GRAPHILE_WORKER_PARENT_PIPE"
"""Environment variable with the number of a descriptor that nobody writes to while the parent lives."""


def hold_on_to_parent(descriptor: int, *, stop: int) -> None:
    """Send SIGTERM to the process `stop` when the parent has died."""
    thread = threading.Thread(
        target=_wait, args=(descriptor, stop), name="graphile-worker parent", daemon=True
    )
    thread.start()


def _wait(descriptor: int, stop: int) -> None:
    if os.read(descriptor, 1) == b"":
        os.kill(stop, signal.SIGTERM)
