"""Suggestions for misspelt task names, for the client, workers, tests and the command line. Pure."""

from __future__ import annotations

from collections.abc import Iterable

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
