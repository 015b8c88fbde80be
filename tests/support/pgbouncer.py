"""A real PgBouncer in transaction mode in front of the test's server."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

from support.programs import needed
from support.working import wait_until

NOBODY = 65534

SETTINGS = """
[databases]
* = {target}
[pgbouncer]
listen_addr =
unix_socket_dir = {folder}
listen_port = 6432
auth_type = any
pool_mode = transaction
default_pool_size = 5
max_client_conn = 100
server_tls_sslmode = disable
ignore_startup_parameters = extra_float_digits
logfile = {folder}/pgbouncer.log
"""


@contextmanager
def pgbouncer_to(url: str, *more_settings: str) -> Iterator[str]:
    """Starts one; gives the URL of the same database through it. Further settings as lines of its file.

    Skips the test if PgBouncer is not installed.
    """
    program = needed("pgbouncer")
    folder = Path(tempfile.mkdtemp(prefix="gw-pgbouncer-"))
    folder.chmod(0o777)
    settings = folder / "pgbouncer.ini"
    settings.write_text("\n".join((SETTINGS.format(target=_target(url), folder=folder), *more_settings, "")))
    user = _account(url) if os.geteuid() == 0 else None  # it refuses to run as root
    process = subprocess.Popen(
        [program, str(settings)],
        user=user,
        group=user,
        extra_groups=None if user is None else [],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(folder / ".s.PGSQL.6432", process, folder)
        query = urlencode({"host": str(folder), "port": 6432}, safe="/")
        parts = urlsplit(url)
        yield f"postgresql://{quote(unquote(parts.username or ''))}@{parts.path}?{query}"
    finally:
        process.terminate()
        process.wait(timeout=60)
        shutil.rmtree(folder, ignore_errors=True)


def _account(url: str) -> int:
    """Whoever may reach the server's socket; else nobody in particular."""
    host = parse_qs(urlsplit(url).query).get("host", [""])[0]
    return Path(host).stat().st_uid or NOBODY if host.startswith("/") else NOBODY


def _target(url: str) -> str:
    """Where the server is, in PgBouncer's words."""
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    words = {
        "host": query.get("host", [parts.hostname or "localhost"])[0],
        "port": query.get("port", [str(parts.port or 5432)])[0],
        "user": unquote(parts.username or "postgres"),
    }
    if parts.password:
        words["password"] = unquote(parts.password)
    return " ".join(f"{name}='{value}'" for name, value in words.items())


def _wait_for(socket: Path, process: subprocess.Popen[bytes], folder: Path) -> None:
    def said() -> str:
        log = folder / "pgbouncer.log"
        return log.read_text() if log.exists() else ""

    def listens() -> bool:
        assert process.poll() is None, f"pgbouncer has ended: {said()}"
        return socket.exists()

    try:
        wait_until(listens, every=0.02)
    except TimeoutError:
        raise AssertionError(f"pgbouncer does not listen: {said()}") from None
