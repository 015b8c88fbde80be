"""A trap: code of an application that raises once where a test has set it."""

from __future__ import annotations

import asyncio


class OddError(BaseException):
    """Not an Exception."""


FAULTS: list[type[BaseException]] = [
    ValueError,
    asyncio.CancelledError,
    GeneratorExit,
    SystemExit,
    KeyboardInterrupt,
    OddError,
]
"""What code may raise."""


class Trap:
    """Raises once where it is set."""

    def __init__(self) -> None:
        self._set: dict[str, type[BaseException]] = {}
        self.seen: set[str] = set()
        """The places where it was called."""

    def set(self, fault: type[BaseException], *places: str) -> None:
        self._set |= dict.fromkeys(places, fault)

    @property
    def unsprung(self) -> list[str]:
        """Where it is set and has not been called since."""
        return list(self._set)

    def __call__(self, place: str) -> None:
        self.seen.add(place)
        fault = self._set.pop(place, None)
        if fault is not None:
            raise fault("as asked")


class TrapWatcher:
    """Watches adds or runs, with a trap."""

    def __init__(self, trap: Trap, name: str) -> None:
        self._trap, self._name = trap, name

    def before(self, watched: object) -> tuple[object, None]:
        self._trap(f"{self._name} before")
        return watched, None

    def after(self, *_: object) -> None:
        self._trap(f"{self._name} after")
