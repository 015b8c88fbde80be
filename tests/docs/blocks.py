"""Reads the code blocks of a Markdown page, with the line where each begins.

The language of a block says how it is tested:

    python       runs, in one namespace per page; `await` is allowed outside of functions
    bash, sql    run, in the page's folder and against the page's database
    toml         is loaded as a configuration file; json and crontab are parsed
    py           Python for another library: is compiled, not run
    javascript, text, console    are not run
    yaml, dockerfile, ini        are files of examples/first_project; see test_tutorial.py

A block whose first line is a comment with a file name (`# tasks/hello.py`) is written to that file. A text
block below a line `<!-- prints -->` is the expected output of the block before it; `…` matches anything.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RUN = frozenset({"python", "bash", "sql", "toml", "json", "crontab", "py"})
FILES = frozenset({"yaml", "dockerfile", "ini"})
NOT_RUN = frozenset({"javascript", "text", "console"}) | FILES
PRINTS = "<!-- prints -->"

FENCE = re.compile(r"^(?P<indent> {0,3})(?P<fence>`{3,}|~{3,})(?P<info>.*)$")
FILE_NAME = re.compile(r"^(?:#|--|//) (?P<path>(?:[\w.-]+/)*(?:[\w-]+\.(?:py|toml|sql|json|jsonl)|crontab))$")


@dataclass(frozen=True)
class Block:
    """One code block."""

    language: str
    text: str
    line: int
    prints: bool = False

    @property
    def path(self) -> str | None:
        """The file to which the block is written."""
        found = FILE_NAME.match(self.text.partition("\n")[0])
        return None if found is None else found["path"]

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"path": self.path}


def blocks_of(page: Path) -> list[Block]:
    """Every fenced block of a page."""
    return read_blocks(page.read_text(encoding="utf-8"))


def read_blocks(markdown: str) -> list[Block]:
    found: list[Block] = []
    opened: tuple[str, str, int] | None = None
    lines: list[str] = []
    last_text = ""
    for number, line in enumerate(markdown.splitlines(), start=1):
        fence = FENCE.match(line)
        if opened is None:
            if fence is None:
                last_text = line.strip() or last_text
            else:
                opened = fence["fence"], fence["info"].strip(), number
                lines = []
        elif fence is not None and fence["fence"].startswith(opened[0]) and not fence["info"].strip():
            text = "\n".join(lines) + "\n"
            found.append(Block(opened[1], text, opened[2], prints=last_text == PRINTS))
            opened, last_text = None, ""
        else:
            lines.append(line)
    if opened is not None:
        raise ValueError(f"the code block of line {opened[2]} is never closed")
    return found


def prose_of(markdown: str) -> list[tuple[int, str]]:
    """The lines outside of fenced blocks, with their numbers."""
    lines: list[tuple[int, str]] = []
    opened: str | None = None
    for number, line in enumerate(markdown.splitlines(), start=1):
        fence = FENCE.match(line)
        if opened is not None:
            if fence is not None and fence["fence"].startswith(opened) and not fence["info"].strip():
                opened = None
        elif fence is not None:
            opened = fence["fence"]
        else:
            lines.append((number, line))
    return lines


def pages() -> list[Path]:
    """Every page for users: the README, the documentation, the READMEs of the examples."""
    return [
        ROOT / "README.md",
        *sorted(ROOT.glob("docs/**/*.md")),
        *sorted(ROOT.glob("examples/*/README.md")),
    ]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()
