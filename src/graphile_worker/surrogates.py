"""Lone surrogates in JSON. JavaScript writes them when it cuts an emoji in two."""

from __future__ import annotations

import re

# Matches every escape as a whole, so that \ud800 after an escaped backslash is not mistaken for one.
# Compiled on first use, because most programs never need it.
_ESCAPE = (
    r"(?s)\\(?:u(?P<high>[dD][89abAB][0-9a-fA-F]{2})(?P<pair>\\u[dD][c-fC-F][0-9a-fA-F]{2})?"
    r"|u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})|.)"
)


def half_surrogate_in(json_text: str | bytes) -> str | None:
    """A message about the first lone surrogate in JSON text that cannot be decoded; None if there is none."""
    text = json_text.decode(errors="replace") if isinstance(json_text, bytes) else json_text
    for escape in re.finditer(_ESCAPE, text):
        half = escape["low"] or (None if escape["pair"] else escape["high"])
        if half is not None:
            return (
                rf"it contains half a surrogate pair, \u{half}, at character {escape.start() + 1}, which is "
                "not valid text; JavaScript writes such a string when it cuts an emoji in two"
            )
    return None
