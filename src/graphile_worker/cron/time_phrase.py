"""Time phrases such as `4w3d2h1m`: digits and a unit, any number of times, in any order. Pure."""

from __future__ import annotations

import re

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_PHRASE = re.compile(r"(?:[0-9]+[smhdw])+")
_PART = re.compile(r"([0-9]+)([smhdw])")
LONGEST = 100 * 366 * 86400  # a century; more would only overflow the calendar


def parse_time_phrase(text: str) -> float:
    """The seconds of a phrase. Raises ValueError, which describes a valid one."""
    if len(text) > 200 or not _PHRASE.fullmatch(text):
        raise ValueError(f"got {text!r}; expected numbers with the units s, m, h, d or w, such as 4w3d2h1m")
    seconds = sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    if seconds > LONGEST:
        raise ValueError(f"got {text!r}; expected at most a hundred years")
    return float(seconds)
