"""Programs that some tests need and a machine may not have; such a test is skipped, and says what to install.

`make test` needs Python, make and git. Whatever else a test starts it asks for here, and nowhere else.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest
from scripts.lively.chromium import find_chromium

PACKAGES = {
    "cargo": "cargo, or a newer one from rustup",
    "chromium": "chromium-headless-shell, or chromium; CHROMIUM may name another one",
    "curl": "curl",
    "kubectl": "kubernetes-client",
    "mount": "mount",
    "node": "nodejs",
    "npm": "npm",
    "pgbouncer": "pgbouncer",
    "pgrep": "procps",
    "promtool": "prometheus",
    "ps": "procps",
    "psql": "postgresql-client",
    "systemd-analyze": "systemd",
}
"""Their packages in Debian, which have similar names elsewhere."""


def needed(name: str) -> str:
    """The path of a program; skips the test if there is none."""
    path = find(name)
    if path is None:
        pytest.skip(missing(name))
    return path


def find(name: str) -> str | None:
    if name == "chromium":
        return find_chromium()
    return shutil.which(name, path=_folders())


def missing(name: str) -> str:
    return f"{name} is not installed (Debian: apt-get install {PACKAGES[name]})"


def needed_by(scripts: Iterable[str], path: str) -> None:
    """Skips the test if one of these shell scripts uses a program that is missing on this PATH."""
    words = {word for script in scripts for word in re.findall(r"[\w-]+", script)}
    for name in sorted(words & PACKAGES.keys()):
        if shutil.which(name, path=path) is None:
            pytest.skip(missing(name))


def _folders() -> str:
    """The PATH and, beside each `bin`, the `sbin` that only administrators have on theirs."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(
        folders + [str(Path(f).with_name("sbin")) for f in folders if Path(f).name == "bin"]
    )
