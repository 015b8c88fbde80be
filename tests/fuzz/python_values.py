"""Anything that a Python program might pass by mistake or on purpose."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

import msgspec
from hypothesis import strategies as st


class Colour(enum.Enum):
    """An enum whose values can be written as JSON."""

    RED = "red"


class Number(enum.IntEnum):
    """An enum that is a number."""

    ONE = 1


class Name(str):
    """Text of a class of its own."""


class Struct(msgspec.Struct):
    """A struct that holds anything."""

    inner: Any = None


@dataclasses.dataclass
class Data:
    """A dataclass that holds anything."""

    inner: Any = None


class Awkward:
    """Neither JSON nor anything else; even its representation is odd."""

    def __repr__(self) -> str:
        return "<awkward {} %s>"


SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    st.text(),
    st.binary(max_size=8),
    st.decimals(),
    st.fractions(),
    st.uuids(),
    st.dates(),
    st.times(),
    st.datetimes(),
    st.timedeltas(),
    st.sampled_from(
        [Colour.RED, Number.ONE, Name("name"), Awkward(), Awkward, object(), ..., print, range(3)]
    ),
    st.sampled_from(
        [msgspec.Raw(b"{}"), msgspec.Raw(b"not json"), msgspec.UNSET, memoryview(b"x"), "\ud800"]
    ),
)
KEYS = st.one_of(
    st.text(max_size=4), st.integers(), st.floats(), st.booleans(), st.none(), st.binary(max_size=2)
)
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(KEYS, inner, max_size=3),
        st.builds(Struct, inner),
        st.builds(Data, inner),
        st.sets(st.integers() | st.text(max_size=3), max_size=3),
        st.lists(inner, max_size=2).map(iter),
    ),
    max_leaves=5,
)
