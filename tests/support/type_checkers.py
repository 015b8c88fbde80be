"""Runs type checkers over files as a user does: outside of this repository, against the installed package."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

Errors = dict[str, dict[int, str]]
"""By file and line."""


def mypy(folder: Path, files: list[str]) -> Errors:
    pytest.importorskip("mypy", reason="mypy is not installed")
    (folder / "mypy.ini").write_text("[mypy]\n[mypy-asyncpg.*]\nignore_missing_imports = true\n")
    flags = ("--strict", "--no-error-summary", "--hide-error-context", f"--cache-dir={folder}")
    done = _run(folder, "mypy", *flags, *files)
    assert not done.stderr, done.stderr
    found = re.findall(r"^(\S+\.py):(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    return _by_file((file, int(line), message) for file, line, message in found)


def pyright(folder: Path, files: list[str]) -> Errors:
    pytest.importorskip("pyright", reason="pyright is not installed")
    done = _run(folder, "pyright", "--outputjson", "--pythonpath", sys.executable, *files)
    try:
        report = json.loads(done.stdout)
    except json.JSONDecodeError:
        pytest.skip(f"pyright cannot run here: {(done.stderr or done.stdout)[-300:]}")
    return _by_file(
        (_within(folder, finding["file"]), finding["range"]["start"]["line"] + 1, finding["message"])
        for finding in report["generalDiagnostics"]
        if finding["severity"] == "error"
    )


def _within(folder: Path, path: str) -> str:
    return Path(path).resolve().relative_to(folder.resolve()).as_posix()


def _by_file(errors: Iterable[tuple[str, int, str]]) -> Errors:
    found: Errors = defaultdict(dict)
    for file, line, message in errors:
        before = found[file].get(line)
        found[file][line] = message if before is None else f"{before}\n{message}"
    return found


def _run(folder: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", program, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
    )
