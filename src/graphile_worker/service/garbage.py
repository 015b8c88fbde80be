"""The garbage collector of a process that starts up and then works for long."""

from __future__ import annotations

import gc


def collect_garbage() -> None:
    """Enable the collector, which `main` disabled; objects from start-up are permanent and not scanned."""
    gc.freeze()
    gc.enable()
