"""The database of `dev`: an embedded PostgreSQL in the project's folder that keeps its data."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ...db.dsn import Dsn
from ...embedded import EmbeddedPostgres, find_binaries
from ...errors import ConfigError, EmbeddedPostgresError
from ..commands.init import DATA_FOLDER


@dataclass(frozen=True, slots=True)
class DevDatabase:
    """A database that can be used: its URL, what it is in a few words, and a psql if there is one."""

    url: str = field(repr=False)
    name: str
    psql: str = "psql"
    folder: str | None = None
    """Where the embedded server keeps its data; None for a database that the user named."""

    @property
    def is_embedded(self) -> bool:
        """Whether the URL is ours to tell: that of a user's own database may hold a password."""
        return self.folder is not None

    @property
    def psql_command(self) -> str:
        """What to type for a prompt."""
        return f"{self.psql} {shlex.quote(self.url)}"

    @property
    def export_command(self) -> str:
        """What to type so that every other command and program uses this database."""
        return f"export DATABASE_URL={shlex.quote(self.url)}"


@contextmanager
def embedded_database(project: Path, *, port: int | None, fresh: bool) -> Iterator[DevDatabase]:
    """Start the server, or join the one that another `dev` started; it ends with the last of them."""
    folder = project / DATA_FOLDER
    if port:
        _check_port(port, folder)
    if fresh:
        find_binaries()  # raises here, before anything is deleted, if there is no PostgreSQL
        _start_over(folder)
    with EmbeddedPostgres(folder, port=port) as server:
        _hide_from_git(folder)
        yield DevDatabase(
            url=server.url(), name=f"PostgreSQL {server.version} in {DATA_FOLDER}", psql=_psql(server),
            folder=str(folder),
        )  # fmt: skip


def given_database(url: str) -> DevDatabase:
    """A database that the user named; it is not ours to start."""
    dsn = Dsn.parse(url)
    return DevDatabase(url=url, name=f"database {dsn.database or ''} at {dsn.target}")


def _start_over(folder: Path) -> None:
    if not folder.exists():
        return
    if not EmbeddedPostgres(folder).stop_if_unused():
        raise EmbeddedPostgresError(
            f"The server in {folder} is in use, so it cannot be thrown away: end the other "
            "`graphile-worker dev` first"
        )
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise EmbeddedPostgresError(f"{folder} cannot be deleted: {error.strerror}") from error


def _check_port(port: int, folder: Path) -> None:
    """A port that another program has: said here in one sentence, not by the server's log."""
    if EmbeddedPostgres(folder).is_running:
        return  # perhaps by the server that is joined
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise ConfigError(
                f"--port: {port} is taken or not allowed ({error.strerror}); choose another one, or 0 for "
                "any that is free"
            ) from error


def _hide_from_git(folder: Path) -> None:
    mark = folder / ".gitignore"
    if not mark.exists():
        mark.write_text("*\n")


def _psql(server: EmbeddedPostgres) -> str:
    if shutil.which("psql"):
        return "psql"
    own = server.bin_dir / "psql"
    return shlex.quote(str(own)) if os.access(own, os.X_OK) else "psql"
