"""Values that callers might give: ordinary ones, those at the edges, and nonsense."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

PG_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
"""What PostgreSQL can store as text."""
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
"""What can be sent to it: NUL bytes too."""


def names(longest: int) -> st.SearchStrategy[str]:
    """Names around the longest that is allowed, and odd ones."""
    lengths = st.sampled_from([1, longest - 1, longest, longest + 1, 2 * longest])
    return st.one_of(
        ANY_TEXT,
        st.sampled_from(["", "a", "task", "o'clock", 'say "no"', "x; drop table y", "%s", "$1", "\\", "né"]),
        st.builds(lambda sign, length: sign * length, st.sampled_from(["x", "ß", "\U0001f600"]), lengths),
    )


SMALL_NUMBERS = st.one_of(
    st.integers(-3, 30),
    st.sampled_from([0, 1, -1, 32767, 32768, -32768, -32769, 2**31 - 1, -(2**31)]),
)
WILD_NUMBERS = SMALL_NUMBERS | st.integers(-(2**70), 2**70)

JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PG_TEXT, inner, max_size=3),
    max_leaves=6,
)
JSON_TEXTS = st.one_of(
    JSON_VALUES.map(json.dumps),
    st.lists(JSON_VALUES, max_size=3).map(json.dumps),
    PG_TEXT,
    st.sampled_from(
        ["", "{", "NaN", "1e999999", "[1e999999]", "[" * 50 + "]" * 50, '"\\ud800"', '["\\u0000"]', "nul"]
    ),
)


def is_json(text: str) -> bool:
    """Whether PostgreSQL takes a text as `json`."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        json.loads(text, parse_constant=refuse, parse_int=str, parse_float=str)
    except ValueError:
        return False
    return True
