"""The folder of the server's Unix socket, and a free TCP port.

The socket's folder is private to the server's user. It is in the data folder unless that path is too
long for a socket address, contains characters that are special in connection strings, or is not
accessible to the server's user; then it is a new temporary folder.
"""

from __future__ import annotations

import re
import shutil
import socket
import tempfile
from contextlib import suppress
from pathlib import Path

from .account import Account
from .folder import DataFolder

LONGEST_SOCKET_PATH = 103  # bytes: macOS allows 104 with the closing NUL, Linux 108
LONGEST_SOCKET_NAME = "/.s.PGSQL.65535.lock"
PLAIN_PATH = re.compile(r"[A-Za-z0-9_./-]+")
TEMPORARY_PREFIX = "graphile-worker-"


def make_socket_folder(folder: DataFolder, account: Account) -> Path:
    """Create the folder for the socket, owned by the server's user."""
    path = folder.path.resolve() / "socket"
    if _fits(path, account):
        path.mkdir(mode=0o700, exist_ok=True)
    else:
        path = Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX, dir=_temporary_root(account)))
    account.give(path)
    return path


def remove_socket_folder(path: Path) -> None:
    with suppress(FileNotFoundError):
        shutil.rmtree(path)


def free_port() -> int:
    """A TCP port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _fits(path: Path, account: Account) -> bool:
    length = len(f"{path}{LONGEST_SOCKET_NAME}".encode())
    return (
        length <= LONGEST_SOCKET_PATH
        and PLAIN_PATH.fullmatch(str(path)) is not None
        and account.blocked_at(path) is None
    )


def _temporary_root(account: Account) -> str:
    chosen = Path(tempfile.gettempdir())
    return str(chosen) if _fits(chosen / f"{TEMPORARY_PREFIX}12345678", account) else "/tmp"  # noqa: S108
