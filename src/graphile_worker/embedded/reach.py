"""Ways for the server's user to what lies behind a closed door, such as a project under root's home.

The data stays where it was asked for: the server gets an open descriptor of its folder and walks
through that. Programs are copied once into a folder that everybody may read, because the dynamic
linker and PostgreSQL itself look for more files beside them.
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

from ..errors import EmbeddedPostgresError
from .account import Account
from .binaries import EXTRA_PACKAGE, Binaries

DESCRIPTORS = Path("/proc/self/fd")
COPIES = Path("/var/cache/graphile-worker")

logger = logging.getLogger("graphile_worker.embedded")


@contextmanager
def reachable_name(account: Account, folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """A name under which the user's processes reach the folder, and the descriptors they must inherit."""
    blocked = account.blocked_at(folder)
    if blocked is None:
        yield str(folder), ()
        return
    if not DESCRIPTORS.is_dir():
        raise EmbeddedPostgresError(
            f"The server runs as the user {account.name}, who may not enter {blocked}: choose a data folder "
            f"outside of it, or allow the way through with: chmod o+x {blocked}"
        )
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield str(DESCRIPTORS / str(descriptor)), (descriptor,)
    finally:
        os.close(descriptor)


def reachable_binaries(binaries: Binaries, account: Account, *, copies: Path = COPIES) -> Binaries:
    """The same programs where the user can execute them: in place, else as a copy made once."""
    if account.may_use_program(binaries.postgres):
        return binaries
    install = binaries.folder.parent
    if install.parent.name != EXTRA_PACKAGE:
        raise EmbeddedPostgresError(
            f"The server runs as the user {account.name}, who may not use the programs in {binaries.folder}: "
            "make them readable for everybody, or give another bin folder"
        )
    origin = install.parent.parent
    mark = hashlib.sha256(f"{install} {binaries.version}".encode()).hexdigest()[:12]
    copy = copies / f"postgresql-{binaries.version}-{mark}"
    relative = binaries.folder.relative_to(origin)
    if not (copy / relative / "postgres").exists():
        _copy_install(origin, install, copy)
    return Binaries(folder=copy / relative, version=binaries.version)


def _copy_install(origin: Path, install: Path, copy: Path) -> None:
    """Copies what the programs need, keeping the relative paths by which they find their libraries."""
    logger.info("Copying PostgreSQL's programs to %s, where the server's user can reach them", copy)
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
        if not copy.exists():  # else another process was faster
            raise EmbeddedPostgresError(
                f"PostgreSQL's programs in {install} are out of the server's user's reach, and copying them "
                f"to {copy} failed: {error}"
            ) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
