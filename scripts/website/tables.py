r"""A hook of mkdocs for tables: shows `\|` in code as a pipe, and breaks no name in the middle of a word.

Code hosts need the backslash. The Markdown of mkdocs would show it: a pipe in code ends no cell there.
"""

from __future__ import annotations

import re
from typing import Any

FENCE = re.compile(r"^ {0,3}(```+|~~~+)")
CODE = re.compile(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)")
CELL = re.compile(r"<td[^>]*>.*?</td>", re.DOTALL)
NAME = re.compile(r"<code>([^<\s]+)</code>")
SHORT = 18
"""Characters of a name that is kept on one line; a longer one may be broken after a dot or an underscore."""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs with the text of a page."""
    lines: list[str] = []
    fence = ""
    for line in markdown.split("\n"):
        opened = FENCE.match(line)
        if opened and not fence:
            fence = opened[1]
        elif opened and opened[1].startswith(fence):
            fence = ""
        is_row = not fence and line.lstrip().startswith("|")
        lines.append(CODE.sub(lambda code: code[0].replace("\\|", "|"), line) if is_row else line)
    return "\n".join(lines)


def on_page_content(html: str, **_: Any) -> str:
    """Called by mkdocs with the HTML of a page."""
    return CELL.sub(lambda cell: NAME.sub(_name, cell[0]), html)


def _name(found: re.Match[str]) -> str:
    if len(found[1]) <= SHORT:
        return f'<code class="whole">{found[1]}</code>'
    broken = re.sub(r"(?<=[a-z][._])(?=[a-z])", "<wbr>", found[1], flags=re.IGNORECASE)
    return f"<code>{broken}</code>"
