"""The file between a worker and `graphile-worker health`: what it says, and whether its writer still lives.

Each worker process has a file of its own, the configured path with its process id appended, and holds a lock
on it as long as it lives; a file that nobody holds was left by a process that is gone. Times in it are those
of the monotonic clock, which all processes of a machine share and nobody can set.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import stat
from contextlib import suppress

import msgspec


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """What the file says."""

    pid: int
    pool_id: str
    turned_at: float
    """When the event loop wrote this."""
    listened_at: float | None = None
    """When LISTEN answered last."""
    stopping: bool = False
    """Whether the worker is on its way out and does not listen any more."""


def heartbeats(path: str) -> list[Heartbeat | None]:
    """What the living worker processes wrote, None for one that wrote nothing yet; files of dead ones go."""
    found: list[Heartbeat | None] = []
    for name in sorted(glob.glob(f"{glob.escape(path)}.*")):
        if not name.removeprefix(f"{path}.").isdecimal():
            continue
        try:
            with open(name, "rb", opener=_as_it_is) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    continue
                if not _is_held(file.fileno()):
                    with suppress(OSError):  # another user's, perhaps; it does not count all the same
                        os.unlink(name)
                    continue
                found.append(msgspec.json.decode(file.read().strip(), type=Heartbeat))
        except FileNotFoundError:  # it ended this moment
            continue
        except OSError as error:
            if error.errno != errno.ELOOP:  # a link is none of our files
                found.append(None)
        except msgspec.DecodeError:
            found.append(None)
    return found


def _as_it_is(path: str, flags: int) -> int:
    """Follows no link and does not wait: in a folder such as /tmp others may have put something there."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _is_held(descriptor: int) -> bool:
    """Whether the process that made the file lives; a shared lock, so that two who look do not mistake."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
