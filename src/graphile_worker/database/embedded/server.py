"""Runs PostgreSQL's programs: create a cluster, launch the server, wait for it, stop it.

The server inherits the descriptor that holds `server.lock`. Its processes keep that lock until the last
one ends, so it is reliable where a process id may be reused or a zombie's. Call every function under
the folder's lock.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ...errors import EmbeddedPostgresError
from .account import Account
from .binaries import Binaries
from .folder import POLL_SECONDS, DataFolder, ServerConnection, is_locked, open_lock_file, wait_for_lock
from .postmaster import (
    ORPHANS_SECONDS,
    may_be_the_server,
    postmaster,
    remove_stale_pid_file,
    status,
)
from .reach import reachable_name

SUPERUSER = "postgres"
LARGEST_LOG = 10 * 1024 * 1024
UNFINISHED = "cluster.new-"

logger = logging.getLogger("graphile_worker.embedded")


def create_cluster(
    folder: DataFolder, binaries: Binaries, account: Account, password: str, *, durable: bool
) -> None:
    """Run initdb in a temporary folder and move the result into place, so that it is never incomplete."""
    logger.info("Creating a PostgreSQL %s cluster in %s", binaries.version, folder.path)
    _remove_broken_clusters(folder)
    fresh = folder.path / f"{UNFINISHED}{secrets.token_hex(4)}"
    fresh.mkdir(mode=0o700)
    account.give(fresh)
    secret = fresh.with_name(f"{fresh.name}.password")
    secret.touch(mode=0o600, exist_ok=False)
    secret.write_text(password)
    account.give(secret)
    locale = ["--locale=C"]
    if binaries.major >= 17:
        locale += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    try:
        with reachable_name(account, fresh) as (place, descriptors):
            _run(
                f"initdb in {folder.path}",
                [
                    *(str(binaries.initdb), "-D", place, "-U", SUPERUSER, "-E", "UTF8", *locale),
                    *("--auth-local=trust", "--auth-host=scram-sha-256"),
                    f"--pwfile={place}/../{secret.name}",
                    *([] if durable else ["--no-sync"]),
                ],
                account,
                descriptors,
            )
        fresh.rename(folder.cluster)
    finally:
        _remove_broken_clusters(folder)


def set_password(folder: DataFolder, binaries: Binaries, account: Account, password: str) -> None:
    """Set a new superuser password while no server runs, because the file with the old one is lost."""
    remove_stale_pid_file(folder)
    with reachable_name(account, folder.cluster) as (place, descriptors):
        _run(
            f"Setting the password of {folder.path}",
            [str(binaries.postgres), "--single", "-D", place, "postgres"],
            account,
            descriptors,
            text=f"ALTER ROLE {SUPERUSER} PASSWORD '{password}'\n",
        )


def launch(
    folder: DataFolder,
    binaries: Binaries,
    account: Account,
    connection: ServerConnection,
    settings: Mapping[str, str],
) -> subprocess.Popen[bytes]:
    """Start the server without waiting; see `wait_until_ready`."""
    lock = open_lock_file(folder.server_lock_file)
    try:
        if not wait_for_lock(lock, ORPHANS_SECONDS):
            raise EmbeddedPostgresError(f"A server is running in {folder.path} already")
        remove_stale_pid_file(folder)
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
        with (
            reachable_name(account, folder.cluster) as (place, descriptors),
            open(folder.log_file, "ab", opener=_private) as log,
        ):
            return subprocess.Popen(
                [
                    *(str(binaries.postgres), "-D", place),
                    *(part for name, value in options.items() for part in ("-c", f"{name}={value}")),
                ],
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


def wait_until_ready(folder: DataFolder, timeout: float) -> None:
    """Wait until the server accepts connections; raises with the end of its log if it dies or times out."""
    deadline = time.monotonic() + timeout
    while is_locked(folder.server_lock_file):
        if status(folder) == "ready":
            return
        if time.monotonic() >= deadline:
            problem = f"PostgreSQL in {folder.path} was not ready after {timeout:g} seconds"
            raise EmbeddedPostgresError(_with_log(folder, problem))
        time.sleep(POLL_SECONDS)
    raise EmbeddedPostgresError(_with_log(folder, f"PostgreSQL could not start in {folder.path}"))


def shut_down(folder: DataFolder, timeout: float) -> None:
    """Stop the server: fast, then immediately, then by force. Returns when its last process is gone."""
    if not is_locked(folder.server_lock_file):
        return
    logger.info("Stopping PostgreSQL in %s", folder.path)
    for name, wait in (("SIGINT", timeout), ("SIGQUIT", 5.0), ("SIGKILL", ORPHANS_SECONDS)):
        pid = postmaster(folder)
        if pid is not None and may_be_the_server(pid, folder):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.Signals[name])
        deadline = time.monotonic() + wait
        while is_locked(folder.server_lock_file):
            if time.monotonic() >= deadline:
                logger.warning("PostgreSQL in %s is still running %g s after %s", folder.path, wait, name)
                break
            time.sleep(POLL_SECONDS)
        else:
            return
    raise EmbeddedPostgresError(_with_log(folder, f"PostgreSQL in {folder.path} could not be stopped"))


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


def _remove_broken_clusters(folder: DataFolder) -> None:
    for path in folder.path.glob(f"{UNFINISHED}*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _environment() -> dict[str, str]:
    # PGDATA, PGPORT, PGOPTIONS and the like are for other servers; messages have to be in English.
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PG", "LC_")) and name not in ("LANG", "LANGUAGE")
    }
    return {**kept, "LC_ALL": "C"}


def _with_log(folder: DataFolder, problem: str) -> str:
    tail = folder.log_tail()
    return f"{problem}. The end of {folder.log_file}:\n{tail}" if tail else problem
