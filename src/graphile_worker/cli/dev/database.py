"""The database of `dev`: an embedded PostgreSQL in the project directory that keeps its data."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ...database.connections.dsn import Dsn
from ...database.embedded import EmbeddedPostgres, find_binaries
from ...errors import ConfigError, EmbeddedPostgresError
from ...runner.process.dev_database import DATA_DIRECTORY


@dataclass(frozen=True, slots=True)
class DevDatabase:
    """A running database: its URL, a short description, and a psql command."""

    url: str = field(repr=False)
    name: str
    psql: str = "psql"
    directory: str | None = None
    """The data directory of the embedded server; None for a database of the user."""

    @property
    def is_embedded(self) -> bool:
        """Whether the URL may be shown: that of a user's own database may contain a password."""
        return self.directory is not None

    @property
    def psql_command(self) -> str:
        return f"{self.psql} {shlex.quote(self.url)}"

    @property
    def export_command(self) -> str:
        """The command that makes other programs use this database."""
        return f"export DATABASE_URL={shlex.quote(self.url)}"


@contextmanager
def embedded_database(project: Path, *, port: int | None, fresh: bool) -> Iterator[DevDatabase]:
    """Start the server, or join that of another `dev`; the last `dev` to end stops it."""
    directory = project / DATA_DIRECTORY
    if port:
        _check_port(port, directory)
    if fresh:
        find_binaries()  # raises before anything is deleted if there is no PostgreSQL
        _delete_data(directory)
    with EmbeddedPostgres(directory, port=port) as server:
        _ignore_in_git(directory)
        yield DevDatabase(
            url=server.url(), name=f"PostgreSQL {server.version} in {DATA_DIRECTORY}", psql=_psql(server),
            directory=str(directory),
        )  # fmt: skip


def existing_database(url: str) -> DevDatabase:
    """A database that the user named, and that we neither start nor stop."""
    dsn = Dsn.parse(url)
    return DevDatabase(url=url, name=f"database {dsn.database or ''} at {dsn.target}")


def _delete_data(directory: Path) -> None:
    if not directory.exists():
        return
    if not EmbeddedPostgres(directory).stop_if_unused():
        raise EmbeddedPostgresError(
            f"The server in {directory} is in use, so its data cannot be deleted: stop the other "
            "`graphile-worker dev` first"
        )
    try:
        shutil.rmtree(directory)
    except OSError as error:
        raise EmbeddedPostgresError(f"{directory} cannot be deleted: {error.strerror}") from error


def _check_port(port: int, directory: Path) -> None:
    """Report a port in use in one sentence, instead of by the server's log."""
    if EmbeddedPostgres(directory).is_running:
        return  # the server that we join may be using it
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise ConfigError(
                f"--port: port {port} cannot be used ({error.strerror}); choose another one, or 0 for any "
                "free port"
            ) from error


def _ignore_in_git(directory: Path) -> None:
    path = directory / ".gitignore"
    if not path.exists():
        path.write_text("*\n")


def _psql(server: EmbeddedPostgres) -> str:
    if shutil.which("psql"):
        return "psql"
    own = server.bin_dir / "psql"
    return shlex.quote(str(own)) if os.access(own, os.X_OK) else "psql"
