"""Rows of other libraries, with access by position and by name as in asyncpg."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple


def _no_names() -> Sequence[str]:
    return ()


class Result(NamedTuple):
    """What a statement returned."""

    rows: Sequence[Sequence[Any]] = ()
    names: Callable[[], Sequence[str]] = _no_names
    """Returns the names of the columns. Most statements are read by position and never need them."""
    status: str = ""
    """Such as `DELETE 2`, from libraries with which a worker writes outcomes."""


class Places:
    """Where the columns of a result are, by name."""

    def __init__(self, names: Callable[[], Sequence[str]]) -> None:
        self._names = names

    @cached_property
    def by_name(self) -> dict[str, int]:
        """Of two columns with one name, the first, as in asyncpg."""
        places: dict[str, int] = {}
        for place, name in enumerate(self._names()):
            places.setdefault(name, place)
        return places


class ForeignRow:
    """One row of a result."""

    __slots__ = ("_places", "_values")

    def __init__(self, values: Sequence[Any], places: Places) -> None:
        self._values = values
        self._places = places

    def __getitem__(self, key: Any, /) -> Any:
        return self._values[self._places.by_name[key] if isinstance(key, str) else key]

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def get(self, key: str, default: Any = None, /) -> Any:
        place = self._places.by_name.get(key)
        return default if place is None else self._values[place]

    def keys(self) -> Iterable[str]:
        return self._places.by_name.keys()

    def values(self) -> Iterable[Any]:
        return iter(self._values)

    def items(self) -> Iterable[tuple[str, Any]]:
        return ((name, self._values[place]) for name, place in self._places.by_name.items())

    def __repr__(self) -> str:
        return f"ForeignRow({dict(self.items())!r})"


def rows_of(result: Result) -> list[ForeignRow]:
    """The rows of a result."""
    places = Places(result.names)
    return [ForeignRow(values, places) for values in result.rows]
