"""What the payloads of failed jobs have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ...values.payload import without_trace
from ..models.failures import SharedMember
from ..redact import HIDDEN

LEAST_JOBS = 3
LEAST_SHARE = 0.8
DEEPEST = 4
MOST_MEMBERS = 200
MOST_SHOWN = 8
LONGEST = 80


def shared_members(payloads: Sequence[str]) -> list[SharedMember]:
    """Members with the same value in at least four of five payloads, which have been redacted before."""
    decoded = [value for value in map(_decoded, payloads) if value is not None]
    if len(decoded) < LEAST_JOBS:
        return []
    found: Counter[tuple[str, str]] = Counter()
    for value in decoded:
        found.update(dict.fromkeys(_members(value), 1))
    common = [
        SharedMember(path, text, number, len(decoded))
        for (path, text), number in found.most_common(MOST_MEMBERS)
        if number >= LEAST_SHARE * len(decoded)
    ]
    return common[:MOST_SHOWN]


def _decoded(raw: str) -> Any:
    try:
        return msgspec.json.decode(without_trace(raw))
    except (msgspec.DecodeError, RecursionError):
        return None


def _members(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Paths and plain values, as JSON texts; redacted ones are left out."""
    if isinstance(value, dict) and depth < DEEPEST:
        for name, each in list(value.items())[:MOST_MEMBERS]:
            yield from _members(each, f"{path}.{name}" if path else str(name), depth + 1)
    elif path and not isinstance(value, dict | list) and not (isinstance(value, str) and HIDDEN in value):
        text = msgspec.json.encode(value).decode()
        if len(text) <= LONGEST and len(path) <= LONGEST:
            yield path, text
