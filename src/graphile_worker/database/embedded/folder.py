"""The data folder: its files, and the processes that use it.

    cluster/          PostgreSQL's own folder (PGDATA)
    connection.json   socket folder, port and password; readable by the owner only
    lock              held while one process starts or stops the server
    server.lock       held by the server's processes until the last one ends
    server.log        the server's log
    sessions/         one file per process that uses the server, locked while it is alive

All locks are `flock` locks, which the kernel releases when a process dies.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from ...errors import EmbeddedPostgresError

POLL_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class ServerConnection:
    """The server's address. `tcp_port` is None while it listens on its socket only."""

    socket_folder: str
    password: str
    tcp_port: int | None = None

    @property
    def port(self) -> int:
        """PostgreSQL needs a number for the socket's name even without TCP."""
        return self.tcp_port if self.tcp_port is not None else 5432


class DataFolder:
    """The paths inside one data folder and the locks on them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cluster = path / "cluster"
        self.connection_file = path / "connection.json"
        self.lock_file = path / "lock"
        self.server_lock_file = path / "server.lock"
        self.log_file = path / "server.log"
        self.sessions = path / "sessions"

    def create(self, *, passable: bool) -> None:
        """Create the folder; `passable` lets the server's user traverse it, but not list it."""
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.sessions.mkdir(exist_ok=True, mode=0o700)
            if passable:
                self.path.chmod(self.path.stat().st_mode | 0o011)
        except OSError as error:
            raise EmbeddedPostgresError(
                f"The data folder {self.path} cannot be created: {error.strerror}. "
                "Choose another one, or make it writable"
            ) from error

    @property
    def major(self) -> str | None:
        """The major version of the cluster, or None without one."""
        with suppress(FileNotFoundError, NotADirectoryError):
            return (self.cluster / "PG_VERSION").read_text().strip()
        return None

    def has_server(self) -> bool:
        """Whether any process of a server exists."""
        return is_locked(self.server_lock_file)

    def read_connection(self) -> ServerConnection | None:
        try:
            return ServerConnection(**json.loads(self.connection_file.read_bytes()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            raise EmbeddedPostgresError(
                f"{self.connection_file} is damaged ({error}): delete it and start again"
            ) from error

    def write_connection(self, connection: ServerConnection) -> None:
        fresh = self.connection_file.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        with open(fresh, "x", opener=open_private) as file:
            json.dump(asdict(connection), file)
        fresh.replace(self.connection_file)

    @contextmanager
    def locked(self, timeout: float) -> Iterator[None]:
        """Hold the lock for starting and stopping the server."""
        descriptor = open_private(self.lock_file)
        try:
            if not wait_for_lock(descriptor, timeout):
                raise EmbeddedPostgresError(
                    f"Another process has been starting or stopping the server in {self.path} "
                    f"for {timeout:g} seconds"
                )
            yield
        finally:
            os.close(descriptor)


class FolderSession:
    """One process that uses the server. Create and end it under the folder's lock."""

    def __init__(self, folder: DataFolder) -> None:
        self._path = folder.sessions / f"{os.getpid()}-{secrets.token_hex(4)}"
        self._descriptor = open_private(self._path)
        self._process = os.getpid()
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    @property
    def is_inherited(self) -> bool:
        """True in a forked child: only the parent ends the session."""
        return os.getpid() != self._process

    def end(self) -> None:
        if not self.is_inherited:
            self._path.unlink(missing_ok=True)
            # Unlocked, not only closed: a forked child may hold a copy of the descriptor.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)


def sweep_sessions(folder: DataFolder) -> int:
    """Remove sessions of dead processes and return how many are alive. Call under the lock."""
    alive = 0
    for path in folder.sessions.iterdir():
        if is_locked(path):
            alive += 1
        else:
            path.unlink(missing_ok=True)
    return alive


def open_private(path: str | Path, flags: int = os.O_RDWR | os.O_CREAT) -> int:
    """For the owner only, and never through a link that another user has planted."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def wait_for_lock(descriptor: int, timeout: float, *, kind: int = fcntl.LOCK_EX) -> bool:
    deadline = time.monotonic() + timeout
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS)


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock on this file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # Shared, so that concurrent checks do not mistake each other for the holder.
        return not wait_for_lock(descriptor, 0.0, kind=fcntl.LOCK_SH)
    finally:
        os.close(descriptor)
