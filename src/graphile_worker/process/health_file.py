"""The health file, which a worker writes and `graphile-worker health` reads.

Each worker process has its own file, the configured path with the process id appended, and keeps it locked
while it is alive; an unlocked file belongs to a dead process. Times are from the monotonic clock, which all
processes of a machine share.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import stat
from contextlib import suppress

import msgspec


class HealthRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a health file."""

    pid: int
    pool_id: str
    turned_at: float
    """When the event loop wrote this."""
    listened_at: float | None = None
    """When LISTEN last worked."""
    stopping: bool = False
    """Whether the worker is shutting down and no longer listens."""
    blocked_by: str | None = None
    """What blocks the event loop; the next write by the loop clears it."""
    blocked_since: float | None = None
    stalled_since: float | None = None
    """Since when slots have been free without a successful fetch, if that is too long."""
    unhealthy: str | None = None
    """Why the worker shuts down by itself and must be replaced."""


def read_health_files(path: str) -> list[HealthRecord | None]:
    """The records of all live worker processes, None for one without a record yet.

    Files of dead processes are deleted.
    """
    found: list[HealthRecord | None] = []
    for name in sorted(glob.glob(f"{glob.escape(path)}.*")):
        if not name.removeprefix(f"{path}.").isdecimal():
            continue
        try:
            with open(name, "rb", opener=_open_untrusted) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    continue
                if not _is_locked(file.fileno()):
                    with suppress(OSError):  # perhaps another user's
                        os.unlink(name)
                    continue
                found.append(msgspec.json.decode(file.read().strip(), type=HealthRecord))
        except FileNotFoundError:  # the process has just ended
            continue
        except OSError as error:
            if error.errno != errno.ELOOP:  # we never make symbolic links
                found.append(None)
        except msgspec.DecodeError:
            found.append(None)
    return found


def _open_untrusted(path: str, flags: int) -> int:
    """Neither follow links nor block: in a directory such as /tmp, others may have made the file."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _is_locked(descriptor: int) -> bool:
    """Whether the writer is alive. A shared lock, so that concurrent checks do not see each other."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
