"""Forbidden flags from several sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..hooks.interceptors import resolve

if TYPE_CHECKING:
    from ..worker.plan import FlagSource


def joined_flags(first: FlagSource, second: FlagSource) -> FlagSource:
    """The flags of both sources."""
    if first is None or second is None:
        return second if first is None else first

    async def both() -> Sequence[str]:
        return [*await _current(first), *await _current(second)]

    return both


async def _current(source: Any) -> Sequence[str]:
    return (await resolve(source()) if callable(source) else source) or ()
