"""Whether a server is alive, and its process id.

`server.lock` shows whether any process of the server exists; the pid file has the postmaster's id and
state; a reply on the socket proves that it listens. None of them suffices: a process id may be reused or
a zombie's, and processes of a killed server linger for a moment.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from contextlib import suppress
from pathlib import Path

from ...errors import EmbeddedPostgresError
from .folder import POLL_SECONDS, DataFolder, ServerConnection, is_locked

ORPHANS_SECONDS = 10.0
ANSWER_SECONDS = 5.0
ASK_FOR_ENCRYPTION = struct.pack("!ii", 8, 80877103)  # the smallest message that every version answers


def is_there_to_join(folder: DataFolder, connection: ServerConnection) -> bool:
    """Whether a server is running or starting; waits while a dying one is not quite gone."""
    deadline = time.monotonic() + ORPHANS_SECONDS
    while is_locked(folder.server_lock_file):
        if is_alive(folder, connection):
            return True
        if time.monotonic() >= deadline:
            raise EmbeddedPostgresError(
                f"Processes of a dead server still use {folder.cluster}: end them (ps lists them as "
                "postgres) and start again"
            )
        time.sleep(POLL_SECONDS)
    return False


def is_alive(folder: DataFolder, connection: ServerConnection) -> bool:
    """Whether the server is running; False while it stops, or while processes of a killed one linger."""
    if not is_locked(folder.server_lock_file) or status(folder) == "stopping":
        return False
    # A connection alone proves nothing: the kernel may still accept it for a server that was just killed.
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(ANSWER_SECONDS)
        try:
            probe.connect(f"{connection.socket_folder}/.s.PGSQL.{connection.port}")
            probe.sendall(ASK_FOR_ENCRYPTION)
            return len(probe.recv(1)) == 1
        except TimeoutError:
            return True  # busy, but the connection is open
        except OSError:
            return False


def _pid_file_lines(folder: DataFolder) -> list[str]:
    with suppress(FileNotFoundError):
        return (folder.cluster / "postmaster.pid").read_text(errors="replace").splitlines()
    return []


def status(folder: DataFolder) -> str | None:
    lines = _pid_file_lines(folder)
    return lines[7].strip() if len(lines) >= 8 else None


def postmaster(folder: DataFolder) -> int | None:
    lines = _pid_file_lines(folder)
    return int(lines[0]) if lines and lines[0].strip().isdecimal() else None


def remove_stale_pid_file(folder: DataFolder) -> None:
    """No server holds `server.lock`, so the process id is dead or was reused."""
    pid = postmaster(folder)
    if pid is not None and _working_folder(pid) == folder.cluster.resolve():
        raise EmbeddedPostgresError(
            f"A PostgreSQL started by other means (process {pid}) uses {folder.cluster}: stop it first"
        )
    (folder.cluster / "postmaster.pid").unlink(missing_ok=True)


def may_be_the_server(pid: int, folder: DataFolder) -> bool:
    """False if the process is certainly another one: the id was reused or belongs to another container."""
    if not Path("/proc/self/comm").exists():
        return True  # known on Linux only
    try:
        if Path(f"/proc/{pid}/comm").read_text().strip() != "postgres":
            return False
    except OSError:
        return False
    return _working_folder(pid) in (None, folder.cluster.resolve())


def _working_folder(pid: int) -> Path | None:
    try:
        return Path(os.readlink(f"/proc/{pid}/cwd"))
    except OSError:  # gone, not accessible, or not on Linux
        return None
