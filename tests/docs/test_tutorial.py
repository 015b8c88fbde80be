"""The tutorial, followed as a reader would, on one project from its first page to its last.

bash         a command that ends
console      a command in a terminal of its own, which keeps running; those that install something or need
             Docker or systemd are left out
text         below `<!-- prints -->` what the last command prints, elsewhere what the first terminal shows
py and others    a file, whose name is the comment in its first line
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from docs.blocks import FILES, ROOT, Block, blocks_of, name_of, pages, prose_of
from support.command_line import clean_environment
from support.ports import unused_port
from support.programs import needed
from support.worker_process import WorkerProcess

pytestmark = pytest.mark.timeout(1200)  # slow on a loaded machine

PROJECT = ROOT / "examples" / "first_project"
TUTORIAL = sorted((ROOT / "docs" / "tutorial").glob("*.md"))
LEFT_OUT = ("python3 ", ". ", "pip ", "docker ", "sudo ")
NAME = re.compile(r"# (?P<path>[\w./-]+)\n")
LONGEST = 600  # words of a page, without its code


class Reader:
    """A project folder and terminals; the first one runs `graphile-worker dev`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        self._environment = clean_environment(PATH=path, PYTHONUNBUFFERED="1")
        self._ports = {port: str(unused_port()) for port in ("8000", "8080", "5679")}
        self._terminals: list[WorkerProcess] = []
        self._printed = ""
        self._seen = 0

    def read(self, block: Block) -> None:
        match block.language:
            case "bash":
                self._type(self._with_ports(block.text))
            case "console":
                for line in block.text.splitlines():
                    self._open_terminal(self._with_ports(line))
            case "text" if NAME.match(block.text) is None:
                self._compare(self._with_ports(block.text), prints=block.prints)
            case _:
                name, text = file_of(block)
                path = self._folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)

    def stop(self) -> None:
        for terminal in reversed(self._terminals):
            if terminal.process.poll() is None:
                terminal.send(signal.SIGINT)
            terminal.ended()

    def close(self) -> None:
        for terminal in self._terminals:
            terminal.close()

    def _type(self, command: str) -> None:
        self._seen = len(self._terminals[0].output) if self._terminals else 0
        done = subprocess.run(
            ["bash", "-e", "-u", "-o", "pipefail", "-c", command],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        self._printed = done.stdout
        assert done.returncode == 0, f"{command}{done.stdout}"

    def _open_terminal(self, line: str) -> None:
        if line.startswith(LEFT_OUT):
            return
        if line.startswith("export DATABASE_URL="):
            found = re.search(r"^export (DATABASE_URL=.+)$", self._terminals[0].output, re.MULTILINE)
            assert found is not None
            (assignment,) = shlex.split(found[1])
            self._environment["DATABASE_URL"] = assignment.partition("=")[2]
            return
        command = ["bash", "-c", f"exec {line}"]
        self._terminals.append(WorkerProcess(command, folder=self._folder, environment=self._environment))
        self._printed = ""

    def _compare(self, expected: str, *, prints: bool) -> None:
        pattern = re.escape(expected.strip()).replace("…", ".*?")
        if prints and self._printed:
            assert re.fullmatch(pattern, self._printed.strip(), re.DOTALL), self._difference(expected)
            return
        terminal = self._terminals[-1 if prints else 0]
        start = 0 if prints else self._seen

        if not terminal.says(re.compile(pattern, re.DOTALL), start=start):
            self._printed = terminal.output[start:]
            raise AssertionError(self._difference(expected))

    def _difference(self, expected: str) -> str:
        return f"expected:\n{expected}\nactual:\n{self._printed}"

    def _with_ports(self, text: str) -> str:
        for port, free in self._ports.items():
            text = re.sub(rf"\b{port}\b", free, text)
        return text


def file_of(block: Block) -> tuple[str, str]:
    """Name and text of a file that a page shows."""
    first, _, text = block.text.partition("\n")
    named = NAME.fullmatch(f"{first}\n")
    assert named is not None, f"line {block.line}: the first line names no file: {first}"
    return named["path"], text


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    needed("curl")
    folder = tmp_path / "club"
    folder.mkdir()
    reading = Reader(folder)
    try:
        yield reading
    finally:
        reading.close()


def test_who_follows_the_tutorial_gets_the_project(reader: Reader, tmp_path: Path) -> None:
    for page in TUTORIAL:
        for block in blocks_of(page):
            try:
                reader.read(block)
            except AssertionError as error:
                raise AssertionError(f"{name_of(page)}:{block.line}: {error}") from error
    reader.stop()
    shown = {
        file_of(block)[0] for page in TUTORIAL for block in blocks_of(page) if NAME.match(block.text)
    } | {"club/__init__.py"}
    assert {path.relative_to(PROJECT).as_posix() for path in PROJECT.glob("**/*.py")} <= shown
    for name in sorted(shown):
        assert (tmp_path / "club" / name).read_text() == (PROJECT / name).read_text(), name


def test_files_on_other_pages_are_those_of_the_project() -> None:
    found = []
    for page in pages():
        for block in blocks_of(page):
            if block.language in FILES:
                name, text = file_of(block)
                assert text == (PROJECT / name).read_text(), f"{name_of(page)}:{block.line}: {name}"
                found.append(name)
    assert "deploy/kubernetes/worker.yaml" in found


@pytest.mark.parametrize("page", TUTORIAL, ids=name_of)
def test_a_page_of_the_tutorial_is_short(page: Path) -> None:
    assert sum(len(line.split()) for _, line in prose_of(page.read_text())) <= LONGEST


def test_each_page_leads_to_the_next() -> None:
    assert [page.name[0] for page in TUTORIAL] == ["1", "2", "3", "4", "5"]
    for page, following in pairwise(TUTORIAL):
        assert f"]({following.name})" in page.read_text().splitlines()[-1]
