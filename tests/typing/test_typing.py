"""Type checkers accept correct programs, and refuse wrong payloads, signatures and options.

The files are checked as a user's are: outside of this repository, against the installed package.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(1200)  # type checkers may take minutes

HERE = Path(__file__).parent
Check = Callable[[Path], dict[int, str]]
"""Checks a file; returns the errors by line."""


def mypy(file: Path) -> dict[int, str]:
    pytest.importorskip("mypy", reason="mypy is not installed")
    (file.parent / "mypy.ini").write_text("[mypy]\n[mypy-asyncpg.*]\nignore_missing_imports = true\n")
    done = _run(
        file, "mypy", "--strict", "--no-error-summary", "--hide-error-context", f"--cache-dir={file.parent}"
    )
    assert not done.stderr, done.stderr
    found = re.findall(rf"^{file.name}:(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    return {int(line): message for line, message in found}


def pyright(file: Path) -> dict[int, str]:
    pytest.importorskip("pyright", reason="pyright is not installed")
    done = _run(file, "pyright", "--outputjson", "--pythonpath", sys.executable)
    try:
        report = json.loads(done.stdout)
    except json.JSONDecodeError:
        pytest.skip(f"pyright cannot run here: {(done.stderr or done.stdout)[-300:]}")
    return {
        finding["range"]["start"]["line"] + 1: finding["message"]
        for finding in report["generalDiagnostics"]
        if finding["severity"] == "error"
    }


def _run(file: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", program, *arguments, file.name],
        cwd=file.parent,
        capture_output=True,
        text=True,
        timeout=600,
    )


def _checked_by(checker: Check, file: Path, folder: Path) -> dict[int, str]:
    return checker(Path(shutil.copy(file, folder)))


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_right_use_is_accepted(checker: Check, tmp_path: Path) -> None:
    assert _checked_by(checker, HERE / "accepted.py", tmp_path) == {}


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_wrong_use_is_refused_line_by_line(checker: Check, tmp_path: Path) -> None:
    lines = (HERE / "refused.py").read_text().splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    found = _checked_by(checker, HERE / "refused.py", tmp_path)
    assert {lines[number - 1].strip(): found[number] for number in sorted(found.keys() - wrong)} == {}
    assert [lines[number - 1].strip() for number in sorted(wrong - found.keys())] == []
