"""SQL text for drivers that do not take `$1` parameters."""

from __future__ import annotations

import re
from functools import cache

_QUOTED = r"""'(?:[^']|'')*'|"(?:[^"]|"")*\""""
_COMMENT = re.compile(rf"({_QUOTED})|\s*--[^\n]*")
_PARAMETER = re.compile(rf"({_QUOTED})|\$([0-9]+)")


def without_comments(sql: str) -> str:
    """The statement without its comments; not for texts that define functions."""
    return _COMMENT.sub(lambda match: match[1] or "", sql).strip()


@cache
def pyformat(sql: str) -> str:
    """The statement with `%(p1)s` in place of `$1`, without comments.

    A driver that substitutes values into the text would write them into comments, where a line break in a
    value ends the comment and the rest runs as SQL. Parentheses, because `-1::smallint` is `-(1::smallint)`.
    """
    text = without_comments(sql).replace("%", "%%")
    return _PARAMETER.sub(lambda match: match[1] or f"(%(p{match[2]})s)", text)


def named(arguments: tuple[object, ...]) -> dict[str, object]:
    """The arguments under the names that `pyformat` gives them."""
    return {f"p{number}": value for number, value in enumerate(arguments, 1)}
