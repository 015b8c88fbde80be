"""Access for the server's user to inaccessible folders, such as a project under root's home.

The data stays in place: the server inherits an open descriptor of its folder. Programs are copied once
into a world-readable folder, because the dynamic linker and PostgreSQL need further files next to them.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...errors import EmbeddedPostgresError
from .account import Account
from .binaries import EXTRA_PACKAGE, Binaries

DESCRIPTORS = Path("/proc/self/fd")
COPIES = Path("/var/cache/graphile-worker")

logger = logging.getLogger("graphile_worker.embedded")


@contextmanager
def reachable_name(account: Account, folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """A path by which the user's processes can access the folder, and the descriptors to inherit."""
    blocked = account.blocked_at(folder)
    if blocked is None:
        yield str(folder), ()
        return
    if not DESCRIPTORS.is_dir():
        raise EmbeddedPostgresError(
            f"The server runs as the user {account.name}, who may not enter {blocked}: choose a data folder "
            f"outside of it, or allow access with: chmod o+x {blocked}"
        )
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield str(DESCRIPTORS / str(descriptor)), (descriptor,)
    finally:
        os.close(descriptor)


def reachable_binaries(binaries: Binaries, account: Account, *, copies: Path = COPIES) -> Binaries:
    """The same programs where the user can execute them: in place, or as a copy made once."""
    if account.may_use_program(binaries.postgres):
        return binaries
    install = binaries.folder.parent
    if install.parent.name != EXTRA_PACKAGE:
        raise EmbeddedPostgresError(
            f"The server runs as the user {account.name}, who may not use the programs in {binaries.folder}: "
            "make them world-readable, or choose another bin folder"
        )
    origin = install.parent.parent
    digest = hashlib.sha256(f"{install} {binaries.version}".encode()).hexdigest()[:12]
    copy = copies / f"postgresql-{binaries.version}-{digest}"
    relative = binaries.folder.relative_to(origin)
    if not (copy / relative / "postgres").exists():
        _copy_install(origin, install, copy)
    return Binaries(folder=copy / relative, version=binaries.version)


def _copy_install(origin: Path, install: Path, copy: Path) -> None:
    """Copy the programs with their libraries, keeping relative paths."""
    logger.info("Copying PostgreSQL's programs to %s, where the server's user can access them", copy)
    copy.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    fresh = Path(tempfile.mkdtemp(prefix="copying-", dir=copy.parent))
    try:
        shutil.copytree(install, fresh / install.relative_to(origin), symlinks=True)
        libraries = origin / f"{EXTRA_PACKAGE}.libs"
        if libraries.is_dir():
            shutil.copytree(libraries, fresh / libraries.name, symlinks=True)
        for path in [fresh, *fresh.rglob("*")]:
            if not path.is_symlink():
                executable = path.is_dir() or path.stat().st_mode & 0o100
                path.chmod(0o755 if executable else 0o644)
        fresh.rename(copy)
    except OSError as error:
        if not copy.exists():  # otherwise another process was faster
            raise EmbeddedPostgresError(
                f"PostgreSQL's programs in {install} are not accessible to the server's user, and copying "
                f"them to {copy} failed: {error}"
            ) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
