"""How much memory a process uses."""

from __future__ import annotations

import os
import sys


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
