"""JSON texts as a stream of symbols: read and changed without decoding.

The text stays as it was written, so large integers and the order of members are right, and nesting of any
depth needs no stack of calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Literal

_SYMBOL = re.compile(r'[ \t\n\r]*+("[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\],:]|[^\s{}\[\],:"]+)', re.DOTALL)


def symbols(text: str) -> Iterator[str]:
    """The symbols of a valid JSON text: texts in quotes, other values, and `{ } [ ] , :`."""
    position = 0
    while found := _SYMBOL.match(text, position):
        yield found[1]
        position = found.end()


def text_of(symbol: str) -> str:
    """The value of a symbol in quotes; half surrogates and the like stay escaped."""
    if "\\" not in symbol:
        return symbol[1:-1]
    try:
        value: str = json.loads(symbol, strict=False)
        value.encode("utf-8")
    except (ValueError, UnicodeEncodeError):
        return symbol[1:-1]
    return value


def quoted(text: str) -> str:
    """A text as a JSON symbol."""
    return json.dumps(text, ensure_ascii=False)


def is_text(symbol: str) -> bool:
    return symbol.startswith('"')


Kind = Literal["open", "close", "name", "value", "mark"]


def walk(text: str) -> Iterator[tuple[Kind, str, list[str]]]:
    """Every symbol with its kind and the path of the value that it belongs to.

    The path has the names of members and the places in arrays; it is one list, which changes as the walk goes
    on.
    """
    path: list[str] = []
    kinds: list[str] = []
    expects_name = False
    for symbol in symbols(text):
        if symbol in ("{", "["):
            yield "open", symbol, path
            kinds.append(symbol)
            path.append("" if symbol == "{" else "0")
            expects_name = symbol == "{"
        elif symbol in ("}", "]"):
            kinds.pop()
            path.pop()
            expects_name = False
            yield "close", symbol, path
        elif symbol == ",":
            yield "mark", symbol, path
            expects_name = kinds[-1] == "{"
            if not expects_name:
                path[-1] = str(int(path[-1]) + 1)
        elif symbol == ":":
            yield "mark", symbol, path
            expects_name = False
        elif expects_name:
            path[-1] = text_of(symbol)
            yield "name", symbol, path
        else:
            yield "value", symbol, path


def member(text: str, path: Sequence[str]) -> str | None:
    """The plain value at a path, as PostgreSQL's `#>>` gives it; None if there is none."""
    wanted = list(path)
    found = None
    for kind, symbol, here in walk(text):
        if kind == "value" and here == wanted:
            found = text_of(symbol) if is_text(symbol) else None if symbol == "null" else symbol
    return found
