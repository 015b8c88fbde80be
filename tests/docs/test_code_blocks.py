"""Every code block of the documentation runs, page by page, each page against its own database."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.blocks import NOT_RUN, ROOT, RUN, blocks_of, name_of, pages, prose_of, read_blocks
from support.command_line import clean_environment

pytestmark = pytest.mark.timeout(1200)  # runs programs that may take minutes

PAGE_PROCESS = Path(__file__).with_name("page_process.py")
STARTS_EMPTY = ("README.md", "docs/index.md", "docs/getting-started.md")
TESTED_ELSEWHERE = (
    "examples/",  # with the commands of their READMEs
    "docs/tutorial/",  # as one project, by test_tutorial.py
)


def _runnable() -> list[Path]:
    return [
        page
        for page in pages()
        if not name_of(page).startswith(TESTED_ELSEWHERE)
        and any(block.language in RUN for block in blocks_of(page))
    ]


@pytest.mark.parametrize("page", _runnable(), ids=name_of)
def test_the_code_of_the_page_runs(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    empty = name_of(page) in STARTS_EMPTY
    url = request.getfixturevalue("empty_database_url" if empty else "database_url")
    blocks = tmp_path / "blocks.json"
    blocks.write_text(json.dumps([block.as_json() for block in blocks_of(page)]))
    folder = tmp_path / "project"
    folder.mkdir()
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        [sys.executable, "-W", "error", str(PAGE_PROCESS), str(blocks)],
        cwd=folder,
        env=clean_environment(DATABASE_URL=url, PATH=path),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, f"{name_of(page)}:\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_code_block_says_what_it_is(page: Path) -> None:
    for block in blocks_of(page):
        assert block.language in RUN | NOT_RUN, f"{name_of(page)}:{block.line}: {block.language!r}"


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_no_code_hides_in_indented_lines(page: Path) -> None:
    """An indented block has no language, so it would never be checked."""
    before, in_list = "", False
    for number, line in prose_of(page.read_text()):
        in_list = bool(re.match(r"\s*([-*]|\d+\.) ", line)) or (
            in_list and (not line or line.startswith(" "))
        )
        indented = line.startswith("    ") and not before.strip() and not in_list
        assert not indented, f"{name_of(page)}:{number}: {line}"
        before = line


def test_blocks_are_found_with_their_language_and_line() -> None:
    text = "a\n\n```python\nx = 1\n```\n\n<!-- prints -->\n\n```text\n1\n```\n\n```bash\n# tasks/a.py\n```\n"
    python, printed, named = read_blocks(text)
    assert (python.language, python.text, python.line, python.prints) == ("python", "x = 1\n", 3, False)
    assert printed.prints
    assert (named.path, named.prints) == ("tasks/a.py", False)


def test_a_block_that_fails_is_reported_with_its_line(tmp_path: Path, database_url: str) -> None:
    blocks = tmp_path / "blocks.json"
    found = read_blocks("```python\nx = 1\n```\n\n```python\nassert x == 2\n```\n")
    blocks.write_text(json.dumps([block.as_json() for block in found]))
    done = subprocess.run(
        [sys.executable, str(PAGE_PROCESS), str(blocks)],
        cwd=tmp_path,
        env=clean_environment(DATABASE_URL=database_url),
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 1
    assert "the python block at line 5 failed" in done.stderr


def test_the_readme_and_the_documentation_are_there() -> None:
    assert {ROOT / "README.md", ROOT / "docs/index.md"} <= set(pages())
