"""The PostgreSQL server that the tests use; it comes from the package that users test with."""

from __future__ import annotations

import os
from typing import Any

import psycopg

from graphile_worker.testing.database import DatabaseServer

__all__ = ["DatabaseServer", "SharedServer", "chosen_programs"]


class SharedServer(DatabaseServer):
    """The server of a test run. Most tests create a database, so this is done as cheaply as possible.

    One connection is kept for it, without a thread or an event loop, and the files of the template are copied
    instead of written through the log.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._admin: psycopg.Connection[Any] | None = None
        self._owner = os.getpid()

    def create_database(self, *, template: str | None = None) -> str:
        name = next(self._names)
        strategy = " strategy file_copy" if self.major >= 15 else ""
        self._databases.add(name)
        self._execute(f'create database "{name}" template "{template or "template0"}"{strategy}')
        return name

    def drop_database(self, name: str) -> None:
        if self.major < 13:
            super().drop_database(name)
            return
        self._execute(f'drop database "{name}" with (force)')
        self._databases.discard(name)

    def close(self) -> None:
        """Drop what is left."""
        self.drop_all()
        if self._admin is not None:
            self._admin.close()

    def _execute(self, statement: str) -> None:
        admin = self._connected()
        try:
            admin.execute(statement)
        except psycopg.OperationalError:
            if not admin.closed:
                raise
            self._connected().execute(statement)  # a test had ended all sessions

    def _connected(self) -> psycopg.Connection[Any]:
        if self._admin is None or self._admin.closed or self._owner != os.getpid():
            self._owner = os.getpid()  # a forked process must not use the connection of its parent
            self._admin = psycopg.connect(
                self.admin_url, autocommit=True, application_name="graphile_worker_testing"
            )
        return self._admin


def chosen_programs() -> dict[str, Any]:
    """For `EmbeddedPostgres`: the version or the folder that the environment asks for."""
    return {
        "version": os.environ.get("TEST_POSTGRES_VERSION") or None,
        "bin_dir": os.environ.get("TEST_POSTGRES_BIN") or None,
    }
