"""Wording that several packages share. Pure.

Wording that several packages share: counts, durations, time phrases, suggestions. Pure.

The names of signals, for messages.

Suggestions for misspelt task names, for the client, workers, tests and the command line. Pure.
"""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Iterable

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_PHRASE = re.compile(r"(?:[0-9]+[smhdw])+")
_PART = re.compile(r"([0-9]+)([smhdw])")
LONGEST = 100 * 366 * 86400  # a century; more would only overflow the calendar


def count(number: int, noun: str) -> str:
    """A number with its noun: `1 job`, `2,000 jobs`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(seconds: float) -> str:
    """Seconds in the two largest units that matter: `0.5 s`, `7 s`, `6 min 43 s`, `6 h 7 min`, `3 d 4 h`."""
    if not math.isfinite(seconds):  # from a time of infinity
        return "an unknown time"
    if 0.001 <= seconds < 0.95:
        return f"{seconds:.1g} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 2 * 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400:,} d {whole % 86400 // 3600} h"


def parse_time_phrase(text: str) -> float:
    """The seconds of a phrase such as `4w3d2h1m`, with units in any order.

    Raises ValueError with a description of the syntax.
    """
    if len(text) > 200 or not _PHRASE.fullmatch(text):
        raise ValueError(f"found {text!r}; expected numbers with the units s, m, h, d or w, such as 4w3d2h1m")
    seconds = sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    if seconds > LONGEST:
        raise ValueError(f"found {text!r}; expected at most a hundred years")
    return float(seconds)


def closest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The known name most similar to a misspelt one, if any is similar enough."""
    from difflib import get_close_matches  # only errors need it

    return next(iter(get_close_matches(name, list(known), n=1, cutoff=cutoff)), None)


def signal_name(number: int) -> str:
    """`SIGTERM`; a real-time signal without a name is `SIGRTMIN+n`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        first, last = getattr(signal, "SIGRTMIN", 0), getattr(signal, "SIGRTMAX", 0)
        return f"SIGRTMIN+{number - first}" if first < number < last else f"signal {number}"


SIMILAR = 0.75
"""Similarity of two names, from 0 to 1, above which one may be meant for the other."""
MOST_SHOWN = 3


def similar_names(name: str, known: Iterable[str]) -> list[str]:
    """Known names that resemble this one in any case, or that end with it, as a nested task's name does."""
    from difflib import get_close_matches  # only misspelt names need it

    folded: dict[str, str] = {one.casefold(): one for one in sorted(known)}
    wanted = name.casefold()
    found = [one for key, one in folded.items() if key.endswith(f"/{wanted}")]
    found += [folded[key] for key in get_close_matches(wanted, folded, n=MOST_SHOWN, cutoff=SIMILAR)]
    return list(dict.fromkeys(found))[:MOST_SHOWN]


def did_you_mean(meant: list[str]) -> str:
    """A question at the end of a sentence; empty if there is no suggestion."""
    return f"; did you mean {' or '.join(repr(name) for name in meant)}?" if meant else ""
