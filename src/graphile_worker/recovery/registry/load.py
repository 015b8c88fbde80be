"""Load: how much memory and processor time the process of a pool uses, measured with each heartbeat.

Reading it takes well under a millisecond, and no statement: a heartbeat carries it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import msgspec

SHORTEST = 0.2  # seconds over which a share of the processor says something
MOST_READ = 200
"""Threads that are asked for their child processes, and processes whose memory is read."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What the process of a pool uses, as of its last heartbeat; None if the system does not say."""

    memory: int | None = None
    """Bytes of its resident memory."""
    child_memory: int | None = None
    """Bytes of the resident memory of its child processes, together."""
    cpu: float | None = None
    """Processors that it used since the heartbeat before: 1.0 is one processor the whole time."""
    loop_delay: float | None = None
    """Seconds by which its event loop was late, at most, since the heartbeat before; None if no job ran."""


class LoadMeter:
    def __init__(self, get_delay: Callable[[], float | None] = lambda: None) -> None:
        """`get_delay`: how late the event loop was at most since the last call."""
        self._get_delay = get_delay
        self._measured_at, self._used = time.monotonic(), time.process_time()
        self._cpu: float | None = None

    def measure(self) -> Load:
        """The load since the last call; may be called in any thread."""
        now, used = time.monotonic(), time.process_time()
        if now - self._measured_at >= SHORTEST:
            self._cpu = round((used - self._used) / (now - self._measured_at), 3)
            self._measured_at, self._used = now, used
        delay = self._get_delay()
        child_memory: int | None = None
        with suppress(OSError, ValueError):
            child_memory = sum(memory_of(pid) or 0 for pid in _children())
        return Load(
            memory=memory_of(None),
            child_memory=child_memory,
            cpu=self._cpu,
            loop_delay=None if delay is None else round(delay, 3),
        )


def memory_of(pid: int | None) -> int | None:
    """Bytes of a process, or of this one; None if the system does not say.

    Where there is no /proc, this is the most that this process ever used, and nothing is known of others.
    """
    try:
        with open(f"/proc/{'self' if pid is None else pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        pass
    if pid is not None or sys.platform == "win32":
        return None
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def _children() -> Iterator[int]:
    """Ids of child processes, which the system lists by the thread that started them."""
    left = MOST_READ
    os.stat(f"/proc/self/task/{os.getpid()}/children")  # fails if this system does not list them
    for thread in os.listdir("/proc/self/task")[:MOST_READ]:
        found: list[bytes] = []
        with (
            suppress(FileNotFoundError, ProcessLookupError),  # the thread has ended
            open(f"/proc/self/task/{thread}/children", "rb") as file,
        ):
            found = file.read().split()[:left]
        left -= len(found)
        yield from map(int, found)
