"""A PostgreSQL server of our own in a data folder, for development, tests and small installations.

Several processes share one server: the first starts it, the others join, the last one to leave stops
it. Killed processes are not counted, and a server that the last one leaves behind is stopped by its
keeper. The next `start()` restarts a killed server with its data and address.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import secrets
import shutil
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Self
from urllib.parse import quote, urlencode

from ...errors import EmbeddedPostgresError
from . import server
from .account import Account, choose_account
from .binaries import Binaries, find_binaries
from .folder import DataFolder, FolderSession, ServerConnection, sweep_sessions
from .keeper import Keeper

OUR_SETTINGS = frozenset(
    {"listen_addresses", "port", "unix_socket_directories", "logging_collector", "data_directory"}
)
LOCK_SECONDS = server.START_SECONDS + server.STOP_SECONDS

logger = logging.getLogger("graphile_worker.embedded")


class EmbeddedPostgres:
    """The server in one data folder. A context manager, sync and async.

    version    `18` or `18.4`; default: that of the data folder, else the newest found
    bin_dir    the folder with PostgreSQL's programs, instead of a search
    port       also listen on 127.0.0.1, with a password; 0 picks a free port; None: private socket only
    settings   further server settings, such as {"max_connections": "200"}
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str],
        *,
        version: str | None = None,
        bin_dir: str | os.PathLike[str] | None = None,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.data_dir = Path(data_dir).absolute()
        self._folder = DataFolder(self.data_dir)
        self._wanted_version = version
        self._bin_dir = bin_dir
        self._wanted_port = port
        self._settings = dict(settings or {})
        self._binaries: Binaries | None = None
        self._session: FolderSession | None = None
        self._keeper = Keeper(self.data_dir)
        self._process: subprocess.Popen[bytes] | None = None
        self._mutex = threading.RLock()
        if taken := sorted(OUR_SETTINGS & {name.lower() for name in self._settings}):
            raise EmbeddedPostgresError(
                f"settings: {', '.join(taken)} cannot be set here; see the options port and data_dir"
            )

    @property
    def version(self) -> str:
        """The version of the programs this server runs, such as `18.4`."""
        return (self._binaries or self._find_binaries()).version

    @property
    def bin_dir(self) -> Path:
        """The folder with PostgreSQL's programs; the extra's includes `psql`."""
        return (self._binaries or self._find_binaries()).folder

    @property
    def is_running(self) -> bool:
        """Whether the server is running, whichever process started it."""
        connection = self._folder.read_connection()
        return connection is not None and server.is_alive(self._folder, connection)

    @property
    def log_file(self) -> Path:
        """The server's log."""
        return self._folder.log_file

    def url(self, database: str = "postgres") -> str:
        """A connection string for asyncpg, psql and every other libpq client."""
        connection = self._folder.read_connection()
        if connection is None or not connection.socket_folder:
            raise EmbeddedPostgresError(f"The server in {self.data_dir} is not started: call start() first")
        name = quote(database, safe="")
        if self._wanted_port is not None:
            credentials = f"{server.SUPERUSER}:{connection.password}"
            return f"postgresql://{credentials}@127.0.0.1:{connection.tcp_port}/{name}"
        query = urlencode({"host": connection.socket_folder, "port": connection.port}, safe="/")
        return f"postgresql://{server.SUPERUSER}@/{name}?{query}"

    def start(self) -> None:
        """Start the server or join a running one; call it again to restart a dead one."""
        with self._mutex:
            account = choose_account(self._folder.cluster)
            self._folder.create(passable=account.switched)
            with self._folder.locked(LOCK_SECONDS):
                if self._session is not None and self._session.is_inherited:
                    self._leave()
                if self._session is None:
                    self._keeper.start()
                    self._session = FolderSession(self._folder)
                    atexit.register(self.stop)
                try:
                    self._ensure_running(account)
                except BaseException as error:
                    self._leave()
                    with suppress(EmbeddedPostgresError):
                        self._stop_if_unused()
                    self._keeper.dismiss()
                    if isinstance(error, OSError):
                        problem = f"PostgreSQL could not be started in {self.data_dir}: {error}"
                        raise EmbeddedPostgresError(problem) from error
                    raise

    def stop(self) -> None:
        """Leave the server; the last process to leave stops it. No-op if not started."""
        with self._mutex:
            if self._session is None or self._session.is_inherited:
                self._leave()
                return
            if self._folder.sessions.is_dir():
                with self._folder.locked(LOCK_SECONDS):
                    self._leave()
                    self._stop_if_unused()
            else:
                logger.warning("The data folder %s is gone; killing its server", self.data_dir)
                self._leave()
                if self._process is not None:
                    self._process.kill()
                self._await_process()
            self._keeper.dismiss()

    def stop_if_unused(self, *, remove: bool = False) -> bool:
        """Stop a server that a killed process left; `remove` its folder; return whether that was done."""
        is_unused = True
        if self._folder.lock_file.exists():
            with self._mutex, self._folder.locked(LOCK_SECONDS):
                is_unused = self._stop_if_unused()
        if is_unused and remove:
            shutil.rmtree(self.data_dir, ignore_errors=True)
            return not self.data_dir.exists()
        return is_unused

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        starting = asyncio.ensure_future(asyncio.to_thread(self.start))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            # The thread cannot be cancelled: let it finish, then stop the server.
            await asyncio.wait([starting])
            await asyncio.to_thread(self.stop)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.shield(asyncio.to_thread(self.stop))

    def _find_binaries(self) -> Binaries:
        made_by, wanted = self._folder.major, self._wanted_version
        if made_by is not None and wanted is not None and wanted.split(".")[0] != made_by:
            raise EmbeddedPostgresError(
                f"{self.data_dir} holds data of PostgreSQL {made_by}, but version {wanted} was asked for: "
                "choose another data folder, or dump the data and load it into a new one"
            )
        self._binaries = find_binaries(version=wanted or made_by, bin_dir=self._bin_dir)
        return self._binaries

    def _ensure_running(self, account: Account) -> None:
        connection = self._folder.read_connection()
        if connection is None and self._folder.has_server():
            raise EmbeddedPostgresError(
                f"{self._folder.connection_file} was deleted while the server runs: "
                "end the processes that use it, then start again"
            )
        if connection is not None and server.is_there_to_join(self._folder, connection):
            self._check_port(connection)
            server.wait_until_ready(self._folder)
            return
        self._binaries = binaries = account.usable(self._find_binaries())
        durable = self._settings.get("fsync", "on").lower() not in ("off", "false", "no", "0")
        if connection is None:
            connection = ServerConnection(socket_folder="", password=secrets.token_urlsafe(24))
            if self._folder.major is not None:
                server.set_password(self._folder, binaries, account, connection.password)
            self._folder.write_connection(connection)
        if self._folder.major is None:
            server.create_cluster(self._folder, binaries, account, connection.password, durable=durable)
        sockets = connection.socket_folder  # kept, so that URLs handed out earlier stay valid
        if not sockets or not Path(sockets).is_dir():
            sockets = str(server.make_socket_folder(self._folder, account))
        connection = replace(connection, socket_folder=sockets, tcp_port=self._choose_port(connection))
        self._folder.write_connection(connection)
        self._forget_process()
        self._process = server.launch(self._folder, binaries, account, connection, self._settings)
        server.wait_until_ready(self._folder)

    def _choose_port(self, connection: ServerConnection) -> int | None:
        if self._wanted_port is None:
            has_others = sweep_sessions(self._folder) > 1
            return connection.tcp_port if has_others else None
        return self._wanted_port or connection.tcp_port or server.free_port()

    def _check_port(self, connection: ServerConnection) -> None:
        if self._wanted_port in ((None,) if connection.tcp_port is None else (None, 0, connection.tcp_port)):
            return
        where = "without a TCP port" if connection.tcp_port is None else f"on port {connection.tcp_port}"
        raise EmbeddedPostgresError(
            f"The server in {self.data_dir} is in use by another process and runs {where}: "
            "end its other users first, or start without `port`"
        )

    def _leave(self) -> None:
        if self._session is None:
            return
        if self._session.is_inherited:
            self._forget_process()
            self._keeper.forget()
        self._session.end()
        self._session = None
        atexit.unregister(self.stop)

    def _stop_if_unused(self) -> bool:
        if sweep_sessions(self._folder):  # others use it
            self._forget_process()
            return False
        server.shut_down(self._folder)
        self._await_process()
        connection = self._folder.read_connection()
        if connection is not None and connection.socket_folder:
            shutil.rmtree(connection.socket_folder, ignore_errors=True)
            self._folder.write_connection(replace(connection, socket_folder="", tcp_port=None))
        return True

    def _await_process(self) -> None:
        if self._process is not None:
            self._process.wait()
            self._process = None

    def _forget_process(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.returncode = 0  # it outlives us on purpose; prevents a warning of Popen
        self._process = None
