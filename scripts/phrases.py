"""`python -m scripts.phrases` finds phrases that read like a translation, in what users read.

These are the pages at the root, such as the README, those of the documentation and of the examples, the
texts in `src/` (help, log lines, errors) and the dashboard's templates and scripts. Docstrings of the public
API are on the pages of the reference.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "graphile_worker"
INSTEAD = {
    r"counts? as|counted as": "is, is treated as",
    r"became of": "the outcome of",
    r"(?:go|goes|going|went) on": "continues, finishes",
    r"beside": "next to, in addition to, with",
    r"also if": "even if",
    r"made up for": "backfilled",
    r"cannot be had": "is unavailable",
    r"knows people": "people sign in",
    r"figures": "statistics, numbers, rates",
    r"verdict": "reason, explanation",
    r"ends of (?:the )?jobs": "outcomes",
    r"(?:rules?|which|they) holds? for|holds? for all": "applies to",
    r"mind the": "say what to do",
    r"further(?= \w)": "more, other, additional",
    r"as far as (?:it|they|that|is)": "if",
}
"""What is refused, as a regular expression, and what to write in its place."""
REFUSED = [
    (re.compile(rf"\b(?:{phrase})\b".replace(" ", r"\s+")), instead) for phrase, instead in INSTEAD.items()
]
NOT_PROSE = {
    ".md": re.compile(r"```.*?```|`[^`\n]*`|\]\([^)\s]*\)|<a id=[^>]*>", re.DOTALL),
    ".html": re.compile(r"\{#.*?#\}|</?[\w-]+", re.DOTALL),
    ".js": re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL),
}
"""What nobody reads, by the suffix of the file."""
BORDER = re.compile(r"[\"']\s+[fr]?[\"']")
"""Between two literals that are one text."""


def main() -> str | None:
    """The phrases that were found, each with its place."""
    found = [line for path in _pages() for line in _in_page(path)]
    found += [line for path in sorted(PACKAGE.rglob("*.py")) for line in _in_module(path)]
    return "\n".join((*found, f"{len(found)} phrases to write differently")) if found else None


def _pages() -> list[Path]:
    folders = (ROOT.glob("*.md"), ROOT.glob("docs/**/*.md"), ROOT.glob("examples/**/*.md"))
    pages = [path for folder in folders for path in sorted(folder)]
    return pages + [path for suffix in ("html", "js") for path in sorted(PACKAGE.rglob(f"*.{suffix}"))]


def _in_page(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    # Each character keeps its line.
    prose = NOT_PROSE[path.suffix].sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text)
    yield from _report(path, prose, 1)


def _in_module(path: Path) -> Iterator[str]:
    source = path.read_text(encoding="utf-8")
    if not any(_refused(BORDER.sub("", source))):
        return
    tree = ast.parse(source)
    expressions = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    is_command = "cli" in path.parts  # a docstring is the help of a command
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            is_name = re.fullmatch(r"\w+", node.value)
            if (is_command or id(node) not in expressions) and not is_name:
                yield from _report(path, node.value, node.lineno)


def _report(path: Path, text: str, first_line: int) -> Iterator[str]:
    for found, instead in _refused(text):
        line = first_line + text.count("\n", 0, found.start())
        yield f"{_name(path)}:{line}: “{' '.join(found[0].split())}”; rather: {instead}"


def _refused(text: str) -> Iterator[tuple[re.Match[str], str]]:
    lower = text.lower()
    for phrase, instead in REFUSED:
        for found in phrase.finditer(lower):
            yield found, instead


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


if __name__ == "__main__":
    sys.exit(main())
