r"""A hook of mkdocs: shows `\|` in the code of a table as a pipe.

Code hosts need the backslash. The Markdown of mkdocs would show it: a pipe in code ends no cell there.
"""

from __future__ import annotations

import re
from typing import Any

FENCE = re.compile(r"^ {0,3}(```+|~~~+)")
CODE = re.compile(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)")


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
