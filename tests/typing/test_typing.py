"""Type checkers accept correct programs, and refuse wrong payloads, signatures and options.

The files are checked as a user's are: outside of this repository, against the installed package.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(1200)  # type checkers may take minutes

HERE = Path(__file__).parent
Errors = dict[str, dict[int, str]]
"""By file and line."""


WRONG_PAYLOADS = {
    'await utils.add_job(send, {"to": "a@example.com"})': ("Letter", "dict[str, str]"),
    "await utils.add_job(send, 5)": ("Letter", "int|Literal[5]"),
    'await utils.add_job(count, {"a": "b"})': ("dict[str, int]", "dict[str, str]"),
    'await runner.add_job(send, {"to": "a"})': ("Letter", "dict[str, str]"),
    'await helpers.add_job(send, {"to": "a"})': ("Letter", "dict[str, str]"),
    'helpers.sync.add_job(send, "a@example.com")': ("Letter", "str|Literal['a@example.com']"),
    'utils.add_job(send, {"to": "a"})': ("Letter", "dict[str, str]"),
    'JobSpec(send, "a@example.com")': ("Letter", "str|Literal['a@example.com']"),
    'await utils.add_job(send, {"to": "a"}, connection=session)': ("Letter", "dict[str, str]"),
}
"""Lines of refused.py, with the type of payload that the task takes and the one that was given."""


def mypy(folder: Path, files: list[str]) -> Errors:
    pytest.importorskip("mypy", reason="mypy is not installed")
    (folder / "mypy.ini").write_text("[mypy]\n[mypy-asyncpg.*]\nignore_missing_imports = true\n")
    flags = ("--strict", "--no-error-summary", "--hide-error-context", f"--cache-dir={folder}")
    done = _run(folder, "mypy", *flags, *files)
    assert not done.stderr, done.stderr
    found = re.findall(r"^(\w+\.py):(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    return _by_file((file, int(line), message) for file, line, message in found)


def pyright(folder: Path, files: list[str]) -> Errors:
    pytest.importorskip("pyright", reason="pyright is not installed")
    done = _run(folder, "pyright", "--outputjson", "--pythonpath", sys.executable, *files)
    try:
        report = json.loads(done.stdout)
    except json.JSONDecodeError:
        pytest.skip(f"pyright cannot run here: {(done.stderr or done.stdout)[-300:]}")
    return _by_file(
        (Path(finding["file"]).name, finding["range"]["start"]["line"] + 1, finding["message"])
        for finding in report["generalDiagnostics"]
        if finding["severity"] == "error"
    )


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


@pytest.fixture(scope="module", params=[mypy, pyright])
def errors(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Errors:
    """What a checker says about both files; it takes most of its time for what they import."""
    folder = tmp_path_factory.mktemp("checked")
    files = ["accepted.py", "results.py", "refused.py"]
    for file in files:
        shutil.copy(HERE / file, folder)
    checker: Callable[[Path, list[str]], Errors] = request.param
    found = checker(folder, files)
    assert found.keys() <= {*files}
    return found


def test_right_use_is_accepted(errors: Errors) -> None:
    assert errors.get("accepted.py", {}) == {}


def test_the_type_of_a_result_is_known(errors: Errors) -> None:
    assert errors.get("results.py", {}) == {}


def test_wrong_use_is_refused_line_by_line(errors: Errors) -> None:
    lines = (HERE / "refused.py").read_text().splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    found = errors["refused.py"]
    assert {lines[number - 1].strip(): found[number] for number in sorted(found.keys() - wrong)} == {}
    assert [lines[number - 1].strip() for number in sorted(wrong - found.keys())] == []


def test_the_message_about_a_wrong_payload_names_both_types(errors: Errors) -> None:
    lines = (HERE / "refused.py").read_text().splitlines()
    for number, message in errors["refused.py"].items():
        wanted, given = WRONG_PAYLOADS.get(
            line := lines[number - 1].removesuffix("# wrong").strip(), ("", "")
        )
        assert wanted in message, f"{line}: {message}"
        assert any(each in message for each in given.split("|")), f"{line}: {message}"
    assert {line.removesuffix("# wrong").strip() for line in lines} >= WRONG_PAYLOADS.keys()
