"""Runs PostgreSQL's programs: create a cluster, launch the server, ask whether it is alive, stop it.

The server inherits the descriptor that holds `server.lock`, so the lock shows whether any process of it
exists. The pid file has the postmaster's id and state; a reply on the socket proves that it listens. None of
them suffices: a process id may be reused or a zombie's, and processes of a killed server linger for a moment.
Call every function but `is_alive` under the folder's lock.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ...errors import EmbeddedPostgresError
from .account import Account
from .binaries import Binaries
from .folder import POLL_SECONDS, DataFolder, ServerConnection, open_private, wait_for_lock

SUPERUSER = "postgres"
LARGEST_LOG = 10 * 1024 * 1024
UNFINISHED = "cluster.new-"
START_SECONDS = 60.0
STOP_SECONDS = 30.0
ORPHANS_SECONDS = 10.0
ANSWER_SECONDS = 5.0
ASK_FOR_ENCRYPTION = struct.pack("!ii", 8, 80877103)  # the smallest message that every version answers
PLAIN_PATH = re.compile(r"[A-Za-z0-9_./-]{1,80}")  # socket addresses have 103 bytes; others need escaping

logger = logging.getLogger("graphile_worker.embedded")


def create_cluster(
    folder: DataFolder, binaries: Binaries, account: Account, password: str, *, durable: bool
) -> None:
    """Run initdb in a temporary folder and move the result into place, so that it is never incomplete."""
    logger.info("Creating a PostgreSQL %s cluster in %s", binaries.version, folder.path)
    for interrupted in folder.path.glob(f"{UNFINISHED}*"):
        shutil.rmtree(interrupted, ignore_errors=True)
    options = ["-E", "UTF8", "--locale=C", *([] if durable else ["--no-sync"])]
    if binaries.major >= 17:
        options += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    with tempfile.TemporaryDirectory(prefix=UNFINISHED, dir=folder.path) as private:
        fresh, secret = Path(private, "cluster"), Path(private, "password")
        fresh.mkdir(mode=0o700)
        secret.write_text(password)
        for path in (private, fresh, secret):
            account.give(path)
        with account.reaching(fresh) as (place, descriptors):
            access = ["--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={place}/../password"]
            command = [str(binaries.folder / "initdb"), "-D", place, "-U", SUPERUSER, *access, *options]
            _run(f"initdb in {folder.path}", command, account, descriptors)
        fresh.rename(folder.cluster)


def set_password(folder: DataFolder, binaries: Binaries, account: Account, password: str) -> None:
    """Set a new superuser password while no server runs, because the file with the old one is lost."""
    _remove_stale_pid_file(folder)
    with account.reaching(folder.cluster) as (place, descriptors):
        command = [str(binaries.postgres), "--single", "-D", place, "postgres"]
        statement = f"ALTER ROLE {SUPERUSER} PASSWORD '{password}'\n"
        _run(f"Setting the password of {folder.path}", command, account, descriptors, text=statement)


def launch(
    folder: DataFolder,
    binaries: Binaries,
    account: Account,
    connection: ServerConnection,
    settings: Mapping[str, str],
) -> subprocess.Popen[bytes]:
    """Start the server without waiting; see `wait_until_ready`."""
    lock = open_private(folder.server_lock_file)
    try:
        if not wait_for_lock(lock, ORPHANS_SECONDS):
            raise EmbeddedPostgresError(f"A server is running in {folder.path} already")
        _remove_stale_pid_file(folder)
        for stale in Path(connection.socket_folder).glob(".s.PGSQL.*"):
            stale.unlink()
        if folder.log_file.exists() and folder.log_file.stat().st_size > LARGEST_LOG:
            folder.log_file.replace(folder.log_file.with_suffix(".log.1"))
        options = {
            "listen_addresses": "" if connection.tcp_port is None else "127.0.0.1",
            "port": str(connection.port),
            "unix_socket_directories": connection.socket_folder,
            "logging_collector": "off",
            **settings,
        }
        logger.info("Starting PostgreSQL %s in %s", binaries.version, folder.path)
        arguments = [f"--{name}={value}" for name, value in options.items()]
        with (
            account.reaching(folder.cluster) as (place, descriptors),
            open(folder.log_file, "ab", opener=open_private) as log,
        ):
            return subprocess.Popen(
                [str(binaries.postgres), "-D", place, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=_environment(),
                pass_fds=(lock, *descriptors),
                start_new_session=True,  # Ctrl-C in the terminal must not reach the server
                **account.spawn_options,
            )
    finally:
        os.close(lock)


def wait_until_ready(folder: DataFolder) -> None:
    """Wait until the server accepts connections; raises with the end of its log if it dies or times out."""
    deadline = time.monotonic() + START_SECONDS
    while folder.has_server():
        if _status(folder) == "ready":
            return
        if time.monotonic() >= deadline:
            raise _failure(folder, f"PostgreSQL in {folder.path} was not ready in {START_SECONDS:g} seconds")
        time.sleep(POLL_SECONDS)
    raise _failure(folder, f"PostgreSQL could not start in {folder.path}")


def shut_down(folder: DataFolder) -> None:
    """Stop the server: fast, then immediately, then by force. Returns when its last process is gone."""
    if not folder.has_server():
        return
    logger.info("Stopping PostgreSQL in %s", folder.path)
    for name, wait in (("SIGINT", STOP_SECONDS), ("SIGQUIT", 5.0), ("SIGKILL", ORPHANS_SECONDS)):
        pid = _postmaster(folder)
        if pid is not None and _may_be_the_server(pid, folder):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.Signals[name])
        deadline = time.monotonic() + wait
        while folder.has_server():
            if time.monotonic() >= deadline:
                logger.warning("PostgreSQL in %s is still running %g s after %s", folder.path, wait, name)
                break
            time.sleep(POLL_SECONDS)
        else:
            return
    raise _failure(folder, f"PostgreSQL in {folder.path} could not be stopped")


def is_there_to_join(folder: DataFolder, connection: ServerConnection) -> bool:
    """Whether a server is running or starting; waits while a dying one is not quite gone."""
    deadline = time.monotonic() + ORPHANS_SECONDS
    while folder.has_server():
        if is_alive(folder, connection):
            return True
        if time.monotonic() >= deadline:
            problem = f"Processes of a dead server still use {folder.cluster}"
            raise EmbeddedPostgresError(f"{problem}: end them (ps lists them as postgres) and start again")
        time.sleep(POLL_SECONDS)
    return False


def is_alive(folder: DataFolder, connection: ServerConnection) -> bool:
    """Whether the server is running; False while it stops, or while processes of a killed one linger."""
    if not folder.has_server() or _status(folder) == "stopping":
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


def make_socket_folder(folder: DataFolder, account: Account) -> Path:
    """Create the socket's folder: in the data folder, if its path suits clients and the server's user."""
    path = folder.path.resolve() / "socket"
    if PLAIN_PATH.fullmatch(str(path)) and account.may("x", folder.path):
        path.mkdir(mode=0o700, exist_ok=True)
    else:
        path = Path(tempfile.mkdtemp(prefix="graphile-worker-", dir="/tmp"))
    account.give(path)
    return path


def free_port() -> int:
    """A TCP port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _run(
    step: str, command: list[str], account: Account, descriptors: tuple[int, ...], *, text: str = ""
) -> None:
    result = subprocess.run(
        command,
        input=text.encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd="/",  # a folder that every user may enter
        env=_environment(),
        pass_fds=descriptors,
        check=False,
        **account.spawn_options,
    )
    if result.returncode != 0:
        output = result.stdout.decode(errors="replace").strip()
        raise EmbeddedPostgresError(f"{step} failed (status {result.returncode}):\n{output}")


def _pid_file_line(folder: DataFolder, number: int) -> str:
    with suppress(FileNotFoundError, IndexError):
        return (folder.cluster / "postmaster.pid").read_text(errors="replace").splitlines()[number].strip()
    return ""


def _status(folder: DataFolder) -> str:
    return _pid_file_line(folder, 7)


def _postmaster(folder: DataFolder) -> int | None:
    line = _pid_file_line(folder, 0)
    return int(line) if line.isdecimal() else None


def _remove_stale_pid_file(folder: DataFolder) -> None:
    """No server holds `server.lock`, so the process id is dead or was reused."""
    pid = _postmaster(folder)
    if pid is not None and _working_folder(pid) == folder.cluster.resolve():
        raise EmbeddedPostgresError(
            f"A PostgreSQL started by other means (process {pid}) uses {folder.cluster}: stop it first"
        )
    (folder.cluster / "postmaster.pid").unlink(missing_ok=True)


def _may_be_the_server(pid: int, folder: DataFolder) -> bool:
    """False if the process is certainly another one: the id was reused or belongs to another container."""
    if not Path("/proc/self/comm").exists():
        return True  # known on Linux only
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return False
    return name == "postgres" and _working_folder(pid) in (None, folder.cluster.resolve())


def _working_folder(pid: int) -> Path | None:
    with suppress(OSError):  # gone, not accessible, or not on Linux
        return Path(os.readlink(f"/proc/{pid}/cwd"))
    return None


def _environment() -> dict[str, str]:
    # PGDATA, PGPORT, PGOPTIONS and the like are for other servers; messages have to be in English.
    foreign = ("PG", "LC_", "LANG")
    return {k: v for k, v in os.environ.items() if not k.startswith(foreign)} | {"LC_ALL": "C"}


def _failure(folder: DataFolder, problem: str) -> EmbeddedPostgresError:
    with suppress(OSError):
        tail = folder.log_file.read_bytes().decode(errors="replace").splitlines()[-20:]
        problem = "\n".join([f"{problem}. The end of {folder.log_file}:", *tail])
    return EmbeddedPostgresError(problem)
