"""`make integrations`: suites of integrations on the oldest and newest versions of the libraries.

Each combination gets a virtual environment below .venv/integrations, which later runs use again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
HOME = Path(sys.prefix) / "integrations"


class Combination(NamedTuple):
    """Versions to test together."""

    name: str
    python: tuple[str, ...]
    """Pythons that can run it, the first one that exists is used."""
    packages: tuple[str, ...]
    tests: str
    keyword: str


NEWER = ("python3.13", "python3.12", "python3.14")
COMBINATIONS = (
    Combination("django-6.0", NEWER, ("django~=6.0.0", "psycopg[binary]"), "tests/django_backend", "usual"),
    Combination(
        "django-newest",
        NEWER,
        ("django>=6.1", "psycopg[binary,pool]"),
        "tests/django_backend",
        "usual or pool",
    ),
    Combination(
        "django-5.2-psycopg2",
        (sys.executable,),
        ("django~=5.2.0", "django-tasks>=0.12", "psycopg2-binary"),
        "tests/django_backend",
        "usual",
    ),
)


def main() -> int:
    """Run all combinations; the number of those that failed."""
    failed = [each.name for each in COMBINATIONS if not passes(each)]
    print(f"failed: {', '.join(failed)}" if failed else "all combinations passed or were skipped")  # noqa: T201
    return len(failed)


def passes(combination: Combination) -> bool:
    python = next((found for name in combination.python if (found := _works(name))), None)
    if python is None:
        print(f"{combination.name}: skipped, there is none of {', '.join(combination.python)}")  # noqa: T201
        return True
    target = HOME / combination.name
    if not (target / "ready").exists():
        _run([python, "-m", "venv", str(target)])
        _run(
            [
                str(target / "bin/pip"),
                "install",
                "--quiet",
                "--editable",
                f"{ROOT}[watch]",
                *combination.packages,
            ]
        )
        (target / "ready").touch()
    versions = _run(
        [str(target / "bin/python"), "-c", "import django, sys; print(sys.version_info[:2], django.VERSION)"]
    )
    print(f"{combination.name}: {versions.strip()}", flush=True)  # noqa: T201
    return not subprocess.run(  # noqa: S603
        [sys.executable, "-m", "pytest", "-q", combination.tests, "-k", combination.keyword],
        cwd=ROOT,
        env={**os.environ, "DJANGO_PYTHON": str(target / "bin/python")},
        check=False,
    ).returncode


def _works(name: str) -> str | None:
    """The path of a Python that starts; pyenv has names for versions that are installed, but not chosen."""
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for path in (shutil.which(name), *map(str, versions.glob(f"*/bin/{name}"))):
        if path and not subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode:  # noqa: S603
            return path
    return None


def _run(command: list[str]) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout  # noqa: S603


if __name__ == "__main__":
    sys.exit(main())
