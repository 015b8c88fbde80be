"""The suite passes on a machine with Python, make and git: whatever else a test needs, it asks for."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.command_line import INNER_PYTEST
from support.programs import PACKAGES, find, needed, needed_by
from support.working import PATIENCE

TESTS = Path(__file__).parent.parent
EVERYWHERE = {"/bin/sh", "bash", "git", "rm", "sh", "true", "umount"}  # the last one only after `mount`
STARTS = {
    "asyncio.create_subprocess_exec",
    *(f"subprocess.{name}" for name in ("Popen", "call", "check_call", "check_output", "run")),
}

INNER = """
import pytest
from support.programs import needed

def test_that_passes():
    pass

@pytest.mark.parametrize("name", ["pgbouncer", "npm"])
def test_with_a_program(name):
    needed(name)

@pytest.fixture
def browser():
    return needed("chromium")

def test_with_a_fixture(browser):
    pass

@pytest.mark.xfail(strict=True)
def test_that_is_known_to_fail():
    assert False
"""
WHOLE_FILE = """
import pytest
from support.programs import needed

pytest.skip("whatever", allow_module_level=True)

def test_never_seen():
    pass
"""


@pytest.fixture
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.delenv("CHROMIUM", raising=False)


@pytest.mark.usefixtures("nothing_installed")
@pytest.mark.parametrize("name", PACKAGES)
def test_without_a_program_a_test_is_skipped_and_names_the_package(name: str) -> None:
    assert find(name) is None
    with pytest.raises(pytest.skip.Exception) as skipped:
        needed(name)
    assert str(skipped.value) == f"{name} is not installed (Debian: apt-get install {PACKAGES[name]})"


def test_without_a_program_the_scripts_that_use_it_are_skipped(tmp_path: Path) -> None:
    needed_by(["echo curly", "python -m shop"], str(tmp_path))
    with pytest.raises(pytest.skip.Exception, match="curl is not installed"):
        needed_by(["python -m shop", "true && curl --silent localhost"], str(tmp_path))


def test_programs_of_administrators_are_found_beside_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("bin", "sbin"):
        (tmp_path / folder).mkdir()
    program = tmp_path / "sbin" / "pgbouncer"
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert needed("pgbouncer") == str(program)


def _started(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Programs that are started by a bare name, with the line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in STARTS:
            command = node.args[0] if node.args else None
            if isinstance(command, ast.List) and command.elts:
                command = command.elts[0]
            if isinstance(command, ast.Constant) and isinstance(command.value, str):
                yield node.lineno, command.value


def test_programs_are_found_in_one_place_only() -> None:
    wrong = []
    for path in sorted(TESTS.rglob("*.py")):
        text = path.read_text()
        if "shutil.which" in text and path.name not in ("programs.py", Path(__file__).name):
            wrong.append(f"{path.relative_to(TESTS)}: shutil.which")
        if "subprocess" in text:
            found = _started(ast.parse(text))
            wrong += [f"{path.relative_to(TESTS)}:{n}: {name}" for n, name in found if name not in EVERYWHERE]
    assert wrong == [], "use support.programs.needed, which skips the test and names the package"


@pytest.fixture
def inner(tmp_path: Path) -> Callable[..., str]:
    """A test run with the plugins of this one, whose PATH has nothing or everything; what it says."""
    folder = tmp_path / "inner"
    folder.mkdir()
    (folder / "test_inner.py").write_text(INNER)
    (folder / "test_whole_file.py").write_text(WHOLE_FILE)
    (folder / "test_other.py").write_text("def test_of_another_file():\n    pass\n")

    def run(*options: str, programs: tuple[str, ...] = ()) -> str:
        path = tmp_path / "-".join(("bin", *programs))
        path.mkdir(exist_ok=True)
        for name in programs:
            (path / name).touch(mode=0o755)
        setup = ["-c", TESTS.parent / "pyproject.toml", "--rootdir", folder, "-p", "conftest", "-v"]
        setup += ["--override-ini", "testpaths=.", *options]
        environment = os.environ | INNER_PYTEST | {"PATH": str(path)}
        environment["PYTHONPATH"] = os.pathsep.join([str(TESTS), *sys.path])
        environment.pop("CHROMIUM", None)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *map(str, setup)],
            cwd=folder, env=environment, capture_output=True, text=True, timeout=2 * PATIENCE,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.mark.parametrize("processes", [(), ("-n", "2", "--dist=loadfile")], ids=["one process", "several"])
def test_what_a_run_skipped_is_all_that_the_next_one_runs(
    inner: Callable[..., str], tmp_path: Path, processes: tuple[str, ...]
) -> None:
    record = tmp_path / "record"
    said = inner("--record-skipped", str(record), *processes)
    assert "2 passed, 4 skipped, 1 xfailed" in said
    assert json.loads(record.read_text()) == [
        "test_inner.py::test_with_a_fixture",
        "test_inner.py::test_with_a_program[npm]",
        "test_inner.py::test_with_a_program[pgbouncer]",
        "test_whole_file.py",
    ]
    said = inner("--only-skipped", str(record), *processes, programs=("npm", "chromium"))
    assert "2 passed, 2 skipped" in said
    assert "test_other" not in said
    assert "SKIPPED [1]" in said
    assert "pgbouncer is not installed" in said


def test_if_nothing_was_skipped_there_is_nothing_to_run(inner: Callable[..., str], tmp_path: Path) -> None:
    record = tmp_path / "record"
    record.write_text("[]")
    assert "passed" not in inner("--only-skipped", str(record))
