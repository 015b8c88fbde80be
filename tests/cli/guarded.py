"""A server that requires passwords, with a role whose password has every awkward character."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

from graphile_worker.database.embedded import EmbeddedPostgres
from support.server import DatabaseServer

ROLE = "guarded"
ODD_PASSWORD = r"""s3cret-p@s:s/w%41?r#d'\ &=;"""
FILED_PASSWORD = "s3cret p@ss/w%41"
"""Without characters that are special in a password file, because the driver does not unescape them."""


@dataclass(frozen=True)
class GuardedServer:
    """The address of the server, and connection strings for it."""

    host: str
    port: int

    def url(self, password: str = ODD_PASSWORD, *, user: str = ROLE, database: str = "postgres") -> str:
        return f"postgresql://{user}:{quote(password, safe='')}@{self.host}:{self.port}/{database}"

    def pairs(self, password: str = ODD_PASSWORD) -> str:
        """The connection string as libpq's `name=value` pairs."""
        escaped = password.replace("\\", "\\\\").replace("'", "\\'")
        return f"host={self.host} port={self.port} user={ROLE} dbname=postgres password='{escaped}'"

    def pass_file(self, path: Path) -> str:
        """A connection string whose password is in a file."""
        path.write_text(f"{self.host}:{self.port}:*:filed:{FILED_PASSWORD}\n")
        path.chmod(0o600)
        return f"postgresql://filed@{self.host}:{self.port}/postgres?passfile={path}"


@contextmanager
def guarded_server_in(directory: Path) -> Iterator[GuardedServer]:
    """Start the server; TCP connections require a password."""
    with EmbeddedPostgres(directory, port=0) as embedded:
        url = embedded.url()
        written = ODD_PASSWORD.replace("'", "''")
        DatabaseServer.run(
            url,
            lambda connection: connection.execute(
                f"create role {ROLE} login superuser password '{written}';"
                f"create role filed login superuser password '{FILED_PASSWORD}';"
                "create role newcomer login password 'right';"
            ),
        )
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        yield GuardedServer(parts.hostname, parts.port)
