"""What type checkers know of tasks: the payload's type, wherever a task is used."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

api = pytest.importorskip("mypy.api")

EXAMPLES = Path(__file__).parent / "typing_examples"
PROJECT = Path(__file__).parents[2]


def findings(name: str) -> tuple[str, set[int]]:
    """What mypy says about an example, and the lines of the example that it names as errors."""
    before = os.getcwd()
    os.chdir(PROJECT)
    try:
        report, errors, _ = api.run(
            ["--strict", "--python-version=3.11", "--cache-dir=.mypy_cache", str(EXAMPLES / name)]
        )
    finally:
        os.chdir(before)
    assert errors == ""
    lines = re.findall(rf"{re.escape(name)}:(\d+): error", report)
    return report, {int(line) for line in lines}


def test_right_use_is_accepted() -> None:
    report, _ = findings("accepted.py")
    assert report.startswith("Success"), report


def test_wrong_use_is_refused_line_by_line() -> None:
    text = (EXAMPLES / "refused.py").read_text().splitlines()
    wrong = {number for number, line in enumerate(text, 1) if line.endswith("# wrong")}
    report, lines = findings("refused.py")
    assert lines == wrong, report
