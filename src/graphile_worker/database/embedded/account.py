"""The operating system user that runs the server.

PostgreSQL refuses to run as root. So root runs it as the owner of an existing cluster, else as `postgres`,
else as `nobody`. Where this user may not go, such as a project under root's home, it inherits an open
descriptor of the data folder and uses a copy of the programs.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import EmbeddedPostgresError
from .binaries import EXTRA_PACKAGE, Binaries

PREFERRED_USERS = ("postgres", "_postgres", "nobody")
DESCRIPTORS = Path("/proc/self/fd")
COPIES = Path("/var/cache/graphile-worker")

logger = logging.getLogger("graphile_worker.embedded")


@dataclass(frozen=True, slots=True)
class Account:
    """A user; `switched` if it is not the one this process runs as."""

    name: str
    uid: int
    gid: int
    switched: bool

    @property
    def spawn_options(self) -> dict[str, Any]:
        """Arguments of `subprocess.Popen` to run a child as this user."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []} if self.switched else {}

    def give(self, path: str | Path) -> None:
        """Make the user the owner of this file or folder."""
        if self.switched:
            os.chown(path, self.uid, self.gid)

    def may(self, access: str, path: Path) -> bool:
        """Whether the user may read (`r`) or execute (`x`) a file, or enter (`x`) a folder."""
        command = ["/bin/sh", "-c", f'test -{access} "$0"', os.fspath(path)]
        return not self.switched or subprocess.run(command, cwd="/", **self.spawn_options).returncode == 0

    @contextmanager
    def reaching(self, folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
        """A path by which the user's processes can access the folder, and the descriptors to inherit."""
        if self.may("x", folder) or not DESCRIPTORS.is_dir():
            yield str(folder), ()
            return
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield str(DESCRIPTORS / str(descriptor)), (descriptor,)
        finally:
            os.close(descriptor)

    def usable(self, binaries: Binaries, *, copies: Path = COPIES) -> Binaries:
        """The same programs where the user can execute them: in place, or as a copy made once."""
        if self.may("r", binaries.postgres) and self.may("x", binaries.postgres):
            return binaries
        install = binaries.folder.parent
        if install.parent.name != EXTRA_PACKAGE:
            raise EmbeddedPostgresError(
                f"The server runs as the user {self.name}, who may not use the programs in "
                f"{binaries.folder}: make them world-readable, or choose another bin folder"
            )
        origin = install.parent.parent
        digest = hashlib.sha256(f"{install} {binaries.version}".encode()).hexdigest()[:12]
        copy = copies / f"postgresql-{binaries.version}-{digest}"
        if not copy.exists():
            logger.info("Copying PostgreSQL's programs to %s, where the server's user can use them", copy)
            copies.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=copies) as temporary, suppress(FileExistsError):
                fresh = Path(temporary, "fresh")
                # The programs look for their libraries and other files at relative paths.
                for part in (install, origin / f"{EXTRA_PACKAGE}.libs"):
                    if part.is_dir():
                        shutil.copytree(part, fresh / part.relative_to(origin), symlinks=True)
                subprocess.run(["chmod", "-R", "a+rX", fresh, copies], check=True)
                fresh.rename(copy)
        return Binaries(folder=copy / binaries.folder.relative_to(origin), version=binaries.version)


def choose_account(cluster: Path) -> Account:
    """The user for this cluster folder, which need not exist yet."""
    uid = os.geteuid()
    try:
        owner = cluster.stat()
    except (FileNotFoundError, NotADirectoryError):
        owner = None
    except PermissionError as error:
        raise EmbeddedPostgresError(f"{cluster} is not accessible: {error.strerror}") from error
    if uid != 0:
        if owner is not None and owner.st_uid != uid:
            problem = f"{cluster} belongs to the user {_name(owner.st_uid)}, not to {_name(uid)}"
            advice = "run this command as that user, or choose another data folder"
            raise EmbeddedPostgresError(f"{problem}: {advice}")
        return Account(_name(uid), uid, os.getegid(), switched=False)
    if owner is not None and owner.st_uid != 0:
        return Account(_name(owner.st_uid), owner.st_uid, owner.st_gid, switched=True)
    for name in PREFERRED_USERS:
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            return Account(name, entry.pw_uid, entry.pw_gid, switched=True)
    raise EmbeddedPostgresError(
        "PostgreSQL does not run as root, and no other user was found to run it as: "
        "create a user named postgres, or run this command as an ordinary user"
    )


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
