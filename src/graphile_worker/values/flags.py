"""Which jobs a worker takes by their flags: `FlagRules`. Pure.

`FlagSources` are the rules as a worker is given them: lists, or functions that each fetch calls.
`FlagDescription` is what a running worker says about them.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ..errors import ConfigError

MARK = "py:"
"""Flags that begin with this are notes of this package about a job. They are in every allowlist."""
FORBIDDEN, ACCEPTED, ALLOWLIST = FLAG_OPTIONS = ("forbidden_flags", "accepted_flags", "flag_allowlist")
"""The options, in the order of the fields below."""

FlagSource = Sequence[str] | Callable[[], Sequence[str] | Awaitable[Sequence[str] | None] | None] | None
"""Flags: a list, or a function or coroutine function that each fetch calls."""


class FlagRules(msgspec.Struct, frozen=True):
    """Which jobs a worker takes. A forbidden flag wins over the other rules; flags are compared exactly."""

    forbidden: tuple[str, ...] = ()
    """A job with one of these is refused."""
    accepted: tuple[str, ...] = ()
    """A job must have one of these; without any there is no such rule."""
    allowlist: tuple[str, ...] | None = None
    """A job may have no other flags than these; None if there is no such rule."""

    @property
    def is_routed(self) -> bool:
        """Whether there are other rules than forbidden flags."""
        return bool(self.accepted) or self.allowlist is not None

    def takes(self, flags: Collection[str]) -> bool:
        """Whether a worker with these rules takes a job with these flags, as the SQL part `flag_rules`."""
        return next(self.refusals(flags), None) is None

    def refusals(self, flags: Collection[str]) -> Iterator[str]:
        """Why a job with these flags is refused, as the end of a sentence about the worker."""
        if found := sorted(set(self.forbidden).intersection(flags)):
            yield f"forbids {', '.join(found)}"
        if self.accepted and not set(self.accepted).intersection(flags):
            yield f"takes only jobs with {_any_of(self.accepted)}"
        if self.allowlist is not None and (found := sorted(self._outside(flags))):
            yield f"does not allow {', '.join(found)}"

    def _outside(self, flags: Iterable[str]) -> set[str]:
        """Those that are not in the allowlist."""
        return {flag for flag in flags if not flag.startswith(MARK)}.difference(self.allowlist or ())

    @property
    def contradiction(self) -> str | None:
        """Why no job can satisfy these rules, in one sentence; None if one can."""
        possible = set(self.accepted).difference(self.forbidden)
        if self.allowlist is not None:
            possible -= self._outside(possible)
        if possible or not self.accepted:
            return None
        names = ", ".join(sorted(self.accepted))
        return (
            f"this worker takes no job, because each of its accepted_flags ({names}) is in forbidden_flags "
            "or missing in flag_allowlist"
        )


def _any_of(flags: Collection[str]) -> str:
    return ("the flag " if len(flags) == 1 else "one of the flags ") + ", ".join(sorted(flags))


NO_RULES = FlagRules()


class FlagDescription(FlagRules, frozen=True):
    """The rules of a running worker: lists, or that a function decides."""

    changing: tuple[str, ...] = ()
    """The options whose flags a function returns, so that they may change; their fields have no rule."""


NO_DESCRIPTION = FlagDescription()


class FlagSources(msgspec.Struct, frozen=True):
    """The rules for flags of a worker: for each a list, a function that each fetch calls, or None."""

    forbidden: FlagSource = None
    accepted: FlagSource = None
    allowlist: FlagSource = None

    def by_option(self) -> dict[str, FlagSource]:
        """The sources by the names of their options."""
        return dict(zip(FLAG_OPTIONS, msgspec.structs.astuple(self), strict=True))

    @property
    def is_set(self) -> bool:
        """Whether there is a rule, even if its list is empty."""
        return any(source is not None for source in self.by_option().values())

    @property
    def changing(self) -> tuple[str, ...]:
        """The options that are functions."""
        return tuple(name for name, source in self.by_option().items() if callable(source))

    @property
    def may_be_routed(self) -> bool:
        """Whether there may be other rules than forbidden flags."""
        return bool(self.accepted) or self.allowlist is not None

    @property
    def description(self) -> FlagDescription:
        """The rules without those that come from a function."""
        fixed = {name: None if callable(source) else source for name, source in self.by_option().items()}
        forbidden, accepted, allowlist = msgspec.structs.astuple(flag_rules(fixed))
        return FlagDescription(forbidden, accepted, allowlist, self.changing)


def flag_rules(lists: Mapping[str, Any]) -> FlagRules:
    """The rules of these lists, by option. Raises ConfigError for anything else."""
    forbidden, accepted, allowlist = (checked_flags(name, lists[name]) for name in FLAG_OPTIONS)
    return FlagRules(
        tuple(forbidden or ()), tuple(accepted or ()), None if allowlist is None else tuple(allowlist)
    )


def checked_flags(name: str, flags: Any) -> list[str] | None:
    """The flags of an option, each once; None if there is no list."""
    if flags is None:
        return None
    if isinstance(flags, str) or not isinstance(flags, Iterable):
        raise ConfigError(f"{name}: expected a list of strings, got {flags!r}")
    found = list(dict.fromkeys(flags))
    if not all(isinstance(flag, str) for flag in found):
        raise ConfigError(f"{name}: expected a list of strings, got {flags!r}")
    return found


def joined_flags(first: FlagSource, second: FlagSource) -> FlagSource:
    """The flags of both sources; those of two lists are a list."""
    if first is None or second is None:
        return second if first is None else first
    if not callable(first) and not callable(second):
        return [*first, *second]

    async def both() -> list[str]:
        return [*await _current(first), *await _current(second)]

    return both


async def _current(source: Any) -> Sequence[str]:
    found = source() if callable(source) else source
    return (await found if inspect.isawaitable(found) else found) or ()
