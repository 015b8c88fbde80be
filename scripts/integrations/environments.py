"""Virtual environments of combinations, and running tests with them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from .combinations import ROOT, Combination

HOME = Path(sys.prefix) / "integrations"
TOOLS = ("hypothesis", "httpx", "pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist")
PROCESSES = os.environ.get("TEST_PROCESSES", "4")


def environment_of(combination: Combination) -> str | None:
    """The Python of the combination's environment, made if it does not exist or has other packages."""
    python = next((found for name in combination.pythons if (found := working_python(name))), None)
    if python is None:
        return None
    target = HOME / combination.name
    extras = "[watch]" if combination.is_django else "[embedded,watch,admin,pydantic]"
    packages = [*combination.packages, *(() if combination.is_django else TOOLS)]
    ready = target / "ready"
    if not ready.exists() or ready.read_text() != "\n".join(packages):
        shutil.rmtree(target, ignore_errors=True)
        _run([python, "-m", "venv", "--without-pip", str(target)])
        pip = [sys.executable, "-m", "pip", "--python", str(target / "bin/python")]
        _run([*pip, "install", "-qq", "--editable", f"{ROOT}{extras}", *packages])
        ready.write_text("\n".join(packages))
    return str(target / "bin/python")


def versions_in(python: str, combination: Combination) -> str:
    """The versions of its packages that are installed."""
    names = [re.split(r"[\[=<>~]", package)[0] for package in combination.packages]
    script = (
        "import sys; from importlib.metadata import version; "
        "print(f'Python {sys.version.split()[0]},', ', '.join(f'{n} {version(n)}' for n in sys.argv[1:]))"
    )
    return _run([python, "-c", script, *dict.fromkeys(names)]).strip()


def run_tests(python: str, combination: Combination) -> bool:
    """Whether the tests pass. Old versions may warn about newer Pythons and libraries."""
    if combination.is_django:
        command = [sys.executable, "-m", "pytest", "-q", *combination.tests]
    else:
        command = [python, "-m", "pytest", "-q", "--override-ini=filterwarnings=default", *combination.tests]
        command += [f"--numprocesses={PROCESSES}"]
    environment = {**os.environ, "DJANGO_PYTHON": python}
    return not subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode  # noqa: S603


def working_python(name: str) -> str | None:
    """The path of a Python that starts; pyenv has names for versions that are installed, but not chosen."""
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for path in (shutil.which(name), *map(str, versions.glob(f"*/bin/{name}"))):
        if path and not subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode:  # noqa: S603
            return path
    return None


def _run(command: list[str]) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout  # noqa: S603
