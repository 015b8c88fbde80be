"""Rows of other libraries, with access by position and by name as in asyncpg."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple


class Result(NamedTuple):
    """What a statement returned: the names of the columns, and tuples."""

    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()
    status: str = ""
    """Such as `DELETE 2`, from libraries with which a worker writes outcomes."""


class ForeignRow:
    """One row of a result."""

    __slots__ = ("_places", "_values")

    def __init__(self, values: Sequence[Any], places: dict[str, int]) -> None:
        self._values = values
        self._places = places

    def __getitem__(self, key: Any, /) -> Any:
        return self._values[self._places[key] if isinstance(key, str) else key]

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def get(self, key: str, default: Any = None, /) -> Any:
        place = self._places.get(key)
        return default if place is None else self._values[place]

    def keys(self) -> Iterable[str]:
        return self._places.keys()

    def values(self) -> Iterable[Any]:
        return iter(self._values)

    def items(self) -> Iterable[tuple[str, Any]]:
        return ((name, self._values[place]) for name, place in self._places.items())

    def __repr__(self) -> str:
        return f"ForeignRow({dict(self.items())!r})"


def rows_of(result: Result) -> list[ForeignRow]:
    """The rows of a result. Of two columns with one name, the first is found by name, as in asyncpg."""
    places: dict[str, int] = {}
    for place, name in enumerate(result.columns):
        places.setdefault(name, place)
    return [ForeignRow(values, places) for values in result.rows]
