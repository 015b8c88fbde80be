"""Where the tests keep what is temporary: in memory if there is enough, because of the databases.

Most tests create a database, which is some seven hundred files. On a disk that takes several times as long as
the rest of such a test; in a file system in memory it takes a few hundredths of a second.

TEST_IN_MEMORY=0    use the usual temporary folder
TMPDIR              use this folder
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
NEEDED = 4 * 2**30  # bytes: some servers at a time, each with its log and a large table or two


def temporary_root() -> str:
    """The folder for temporary folders of a run that was not told which."""
    if os.environ.get("TEST_IN_MEMORY", "1") != "0" and _is_suitable(SHARED_MEMORY):
        return str(SHARED_MEMORY)
    return tempfile.gettempdir()


def _is_suitable(folder: Path) -> bool:
    """Tests run programs that they write to their temporary folder, so it must allow that, too."""
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        return False
    system = os.statvfs(folder)
    return (
        system.f_bavail * system.f_frsize >= NEEDED
        and not system.f_flag & os.ST_NOEXEC
        and _available_memory() >= NEEDED
    )


def _available_memory() -> int:
    """In bytes, as Linux reports it: what new programs can have without swapping."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in fields else 0
