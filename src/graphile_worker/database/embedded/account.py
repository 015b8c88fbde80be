"""The operating system user that runs the server.

PostgreSQL refuses to run as root. An ordinary user runs the server as itself; root runs it as the
owner of an existing cluster, else as `postgres`, else as `nobody`. Paths that this user may not
access, such as a project under root's home, are detected here, before PostgreSQL fails on them.
"""

from __future__ import annotations

import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from ...errors import EmbeddedPostgresError

PREFERRED_USERS = ("postgres", "_postgres", "nobody")


class SpawnOptions(TypedDict, total=False):
    """Arguments of `subprocess.Popen` to run a child as another user."""

    user: int
    group: int
    extra_groups: list[int]


@dataclass(frozen=True, slots=True)
class Account:
    """A user; `switched` if it is not the one this process runs as."""

    name: str
    uid: int
    gid: int
    switched: bool

    @property
    def spawn_options(self) -> SpawnOptions:
        if not self.switched:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def give(self, path: Path) -> None:
        """Make the user the owner of this file or folder."""
        if self.switched:
            os.chown(path, self.uid, self.gid)

    def blocked_at(self, path: Path) -> Path | None:
        """The first parent folder of `path` that the user may not enter, or None."""
        if not self.switched:
            return None
        path = path.resolve()
        for folder in reversed(path.parents):
            if not self._may(folder, read=False):
                return folder
        return None

    def may_use_program(self, path: Path) -> bool:
        """Whether the user can access, read and execute this file."""
        return self.blocked_at(path) is None and self._may(path.resolve(), read=True)

    def _may(self, path: Path, *, read: bool) -> bool:
        status = path.stat()
        wanted = stat.S_IXOTH | (stat.S_IROTH if read else 0)
        if status.st_uid == self.uid:
            wanted <<= 6
        elif status.st_gid == self.gid:
            wanted <<= 3
        return status.st_mode & wanted == wanted


def choose_account(cluster: Path) -> Account:
    """The user for this cluster folder, which need not exist yet."""
    uid = os.geteuid()
    if uid != 0:
        _refuse_foreign(cluster, uid)
        return Account(name=_name(uid), uid=uid, gid=os.getegid(), switched=False)
    if cluster.exists() and (owner := cluster.stat()).st_uid != 0:
        return Account(name=_name(owner.st_uid), uid=owner.st_uid, gid=owner.st_gid, switched=True)
    for name in PREFERRED_USERS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name=name, uid=entry.pw_uid, gid=entry.pw_gid, switched=True)
    raise EmbeddedPostgresError(
        "PostgreSQL does not run as root, and no other user was found to run it as: "
        "create a user named postgres, or run this command as an ordinary user"
    )


def _refuse_foreign(cluster: Path, uid: int) -> None:
    try:
        owner = cluster.stat().st_uid
    except FileNotFoundError:
        return
    except PermissionError as error:
        raise EmbeddedPostgresError(f"{cluster} is not accessible: {error.strerror}") from error
    if owner != uid:
        raise EmbeddedPostgresError(
            f"{cluster} belongs to the user {_name(owner)}, not to {_name(uid)}: "
            "run this command as that user, or choose another data folder"
        )


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
