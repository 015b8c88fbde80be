"""The Python code of the documentation passes mypy --strict, all pages in one process.

The blocks of a page are one module, as they run in one namespace, in an asynchronous function if they have
`await` outside of functions. A block with a file name is a module of its own. Lines keep their numbers.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from docs.blocks import ROOT, Block, blocks_of, name_of, pages, read_blocks

pytestmark = pytest.mark.timeout(1200)  # mypy may take minutes

FRAGMENTS = {
    ("docs/getting-started.md", "# tasks/greet.py"): "shows that annotations are optional",
}
"""Blocks that are not checked, by page and first line, and why."""

CONFIGURATION = """
[mypy]
strict = true
explicit_package_bases = true
namespace_packages = true
allow_redefinition = true
local_partial_types = true
disable_error_code = no-redef
[mypy-asyncpg.*,django.*]
ignore_missing_imports = true
"""
"""The blocks of a page may define a name again, which they do one after the other."""

WRONG = """
A task:

```python
from graphile_worker import make_worker_utils, task

@task
async def charge(payload: int) -> str:
    return str(payload)
```

```python
async with make_worker_utils() as utils:
    await utils.add_job(charge, "5")
    job = await utils.add_job(charge, 5)
```

```python
number: int = await job.result()
```
"""


def test_the_code_of_the_documentation_is_typed(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy is not installed")
    for page in pages():
        blocks = [block for block in blocks_of(page) if (name_of(page), first_line(block)) not in FRAGMENTS]
        write_page(tmp_path, name_of(page), blocks)
    write_page(tmp_path, "wrong.md", read_blocks(WRONG))
    (tmp_path / "mypy.ini").write_text(CONFIGURATION)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", f"--cache-dir={tmp_path / 'cache'}", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert not done.stderr, done.stderr
    found = re.findall(r"^(\w+)/\S+?:(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    problems = {(page, int(line)): message for page, line, message in found}
    assert {place for place in problems if place[0] == "wrong"} == {("wrong", 14), ("wrong", 19)}
    names = {folder_of(name_of(page)): name_of(page) for page in pages()}
    assert [
        f"{names[page]}:{line}: {message}" for (page, line), message in problems.items() if page != "wrong"
    ] == []


def test_every_fragment_is_in_the_documentation() -> None:
    there = {(page, first_line(block)) for page, _ in FRAGMENTS for block in blocks_of(ROOT / page)}
    assert FRAGMENTS.keys() <= there


def first_line(block: Block) -> str:
    return block.text.partition("\n")[0]


def folder_of(page: str) -> str:
    return re.sub(r"\W", "_", page.removesuffix(".md"))


def write_page(root: Path, page: str, blocks: Iterable[Block]) -> None:
    """Write the Python blocks of a page as modules of a package."""
    blocks = [block for block in blocks if block.language == "python"]
    folder = root / folder_of(page)
    own = {Path(block.path).parts[0].removesuffix(".py") for block in blocks if block.path}
    lines: list[str] = []
    for block in blocks:
        text = _with_absolute_imports(block.text, folder.name, own)
        if block.path:
            path = folder / block.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n" * block.line + text)
        else:
            lines += [""] * (block.line - len(lines)) + text.splitlines()
    if lines:
        folder.mkdir(exist_ok=True)
        (folder / "page.py").write_text(
            "\n".join(_in_a_function(lines) if _has_await(lines) else lines) + "\n"
        )


def _with_absolute_imports(text: str, package: str, own: set[str]) -> str:
    """The modules of a page are those of its package: other pages have modules of the same names."""
    if not own:
        return text
    return re.sub(
        rf"^(\s*)(from|import) ({'|'.join(map(re.escape, sorted(own)))})\b",
        rf"\1\2 {package}.\3",
        text,
        flags=re.MULTILINE,
    )


def _has_await(lines: list[str]) -> bool:
    return any(
        re.match(r"async (with|for) |(?!async def |def |class |#|@| ).*\bawait ", line) for line in lines
    )


def _in_a_function(lines: list[str]) -> list[str]:
    """The first line is that of the page's title, where no block begins."""
    inner = [re.sub(r"^(\s+)global ", r"\1nonlocal ", f"    {line}") if line else "" for line in lines]
    return ["async def page() -> None:", *inner[1:]]
