"""Functions to call in place of those that `Depends` names: how tests replace what tasks depend on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError

if TYPE_CHECKING:
    from .injection import Injection, Wanted

Function = Callable[..., Any]
DependencyOverrides = Mapping[Function, Function]
"""Functions that `Depends` names, and those to call instead."""


class Overrides:
    """The overrides of one worker."""

    def __init__(self, given: DependencyOverrides) -> None:
        for original, replacement in given.items():
            for function in (original, replacement):
                if not callable(function):
                    raise ConfigError(
                        f"dependency_overrides: expected functions, got {function!r}; to give a value, write "
                        "lambda: value"
                    )
        self._given = dict(given)
        self._wanted: dict[Injection, tuple[Wanted, ...]] = {}

    def apply(
        self, injection: Injection, resolve: Callable[[DependencyOverrides], tuple[Wanted, ...]]
    ) -> tuple[Wanted, ...]:
        """What a task wants with them, resolved once."""
        wanted = self._wanted.get(injection)
        if wanted is None:
            wanted = self._wanted[injection] = resolve(self._given)
        return wanted


def overrides_of(*given: DependencyOverrides | None) -> Overrides | None:
    """The overrides in all of these, later ones first; None without any."""
    joined = {original: instead for each in given if each for original, instead in each.items()}
    return Overrides(joined) if joined else None
