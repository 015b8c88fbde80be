"""Extensions: objects of the application, passed when a worker starts, that tasks request by type.

A database of your own, an HTTP client, settings: pass them once as `extensions=[client, settings]`, and get
them in every task as `helpers.extension(Client)`, typed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar, overload

from ..errors import ConfigError, ExtensionMissingError

T = TypeVar("T")
D = TypeVar("D")
_NO_DEFAULT: Any = object()


class Extensions:
    """Application objects by type, from a list of objects or a mapping of types to objects.

    Use a mapping when tasks ask for another type than the object's own, for example a base class.
    """

    def __init__(self, given: Iterable[object] | Mapping[type[Any], object] = ()) -> None:
        self._by_type: dict[type[Any], Any] = {}
        if isinstance(given, Extensions):
            self._by_type.update(given._by_type)
            return
        if isinstance(given, Mapping):
            for kind, value in given.items():
                if not isinstance(kind, type):
                    raise ConfigError(f"extensions: the keys must be types, got {kind!r}")
                self._by_type[kind] = value
            return
        if isinstance(given, str | bytes):
            raise ConfigError(f"extensions: expected a list of objects, got {given!r}")
        for value in given:
            if isinstance(value, type):
                raise ConfigError(f"extensions: pass an object of {value.__name__}, not the class itself")
            if type(value) in self._by_type:
                raise ConfigError(
                    f"extensions: there are two objects of type {type(value).__name__}; tasks ask by type, "
                    "so wrap one of them in a class of its own"
                )
            self._by_type[type(value)] = value

    @overload
    def get(self, kind: type[T]) -> T: ...
    @overload
    def get(self, kind: type[T], default: D) -> T | D: ...
    def get(self, kind: type[T], default: Any = _NO_DEFAULT) -> Any:
        """The object of this type, or the only object of a subclass; else the default or an error."""
        try:
            return self._by_type[kind]
        except KeyError:
            pass
        found = [value for own, value in self._by_type.items() if _is_subclass(own, kind)]
        if len(found) == 1:
            return found[0]
        if default is not _NO_DEFAULT:
            return default
        raise ExtensionMissingError(kind, [own.__name__ for own in self._by_type], ambiguous=len(found) > 1)

    def _updated(self, more: Extensions) -> Extensions:
        """These and more; of two objects of one type, those in `more` win."""
        both = Extensions(self)
        both._by_type.update(more._by_type)
        return both

    def __contains__(self, kind: object) -> bool:
        return isinstance(kind, type) and self.get(kind, None) is not None

    def __iter__(self) -> Iterator[type[Any]]:
        return iter(self._by_type)

    def __len__(self) -> int:
        return len(self._by_type)

    def __repr__(self) -> str:
        return f"Extensions({', '.join(kind.__name__ for kind in self._by_type)})"


def _is_subclass(own: type[Any], kind: type[Any]) -> bool:
    try:
        return issubclass(own, kind)
    except TypeError:  # a protocol that cannot be checked at run time
        return False
