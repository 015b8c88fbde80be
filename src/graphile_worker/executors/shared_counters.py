"""SharedCounters: two numbers in memory that a worker shares with one of its processes.

The process writes the number of each call before it begins it. So the worker knows, even if the process dies
or is deep in C code, which call it ran and which it had not begun. The worker writes up to which number it
takes calls back that were not begun.

Each side writes its number before it reads the other one. So of a call that is begun and taken back at the
same moment, at least one side notices: the process, which then does not run it and says so.
"""

from __future__ import annotations

import mmap
import os
import tempfile

_SIZE = 16


class SharedCounters:
    """The numbers `begun` and `taken_back`."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, _SIZE)
        self._numbers = memoryview(self._memory).cast("Q")

    @property
    def begun(self) -> int:
        """The number of the last call that the process began."""
        return self._numbers[0]

    @property
    def taken_back(self) -> int:
        """Calls up to this number that were not begun are taken back."""
        return self._numbers[1]

    def begin(self, number: int) -> bool:
        """In the process: whether to run the call; False if it was taken back."""
        self._numbers[0] = number
        return number > self._numbers[1]

    def take_back(self, number: int) -> int:
        """In the worker: take back calls up to this number; the number of the last that was begun."""
        self._numbers[1] = number
        return self._numbers[0]

    def close(self) -> None:
        """Release the memory."""
        self._numbers.release()
        self._memory.close()


def new_descriptor() -> int:
    """An open file for them, without a name; close it when both sides have it."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("graphile-worker")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, _SIZE)
    return descriptor
