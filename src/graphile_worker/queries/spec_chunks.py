"""Splitting a list of specs into chunks of one statement each, and rejecting conflicts between specs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from ..errors import InvalidArgumentError
from ..spec import JobSpec
from .large_payloads import LARGE_PAYLOAD, warn_of_large_payloads
from .spec_columns import SpecColumns, columns_of

_key_of = attrgetter("job_key")

CHUNK_SPECS = 1000
"""Specs per statement: more gains no speed and takes more memory, here and in the server."""
CHUNK_BYTES = 8 * 1024 * 1024
"""Payload bytes per statement, unless a single payload is larger."""


class Chunk(NamedTuple):
    """Specs for one statement, and whether a waiting job with the same key keeps its run_at."""

    columns: SpecColumns
    preserve_run_at: bool


def chunks_of(specs: Iterable[JobSpec], now: datetime | None) -> Iterator[Chunk]:
    """The specs in chunks, in order; `now` replaces the server's clock."""
    remaining = iter(specs)
    keys: set[str] = set()
    first = 0
    while batch := list(islice(remaining, CHUNK_SPECS)):
        if _is_simple(batch):
            parts: Iterable[tuple[list[JobSpec], bool]] = [(batch, False)]
        else:
            _check(batch, first, keys)
            parts = _by_mode(batch)
        for part, preserve in parts:
            columns = columns_of(part, first=first, now=now)
            for piece in _by_size(columns):
                yield Chunk(piece, preserve)
            first += len(part)


def _is_simple(batch: list[JobSpec]) -> bool:
    """Whether all specs are plain JobSpecs without keys, as usual: no conflicts, and no mode matters."""
    return set(map(type, batch)) == {JobSpec} and not any(map(_key_of, batch))


def _by_mode(batch: list[JobSpec]) -> Iterator[tuple[list[JobSpec], bool]]:
    """Split where the job key mode changes: the function takes one mode for all its specs."""
    part: list[JobSpec] = []
    mode: bool | None = None
    for spec in batch:
        if spec.job_key is not None:
            own = spec.job_key_mode == "preserve_run_at"
            if mode is not None and own is not mode:
                yield part, mode
                part = []
            mode = own
        part.append(spec)
    yield part, bool(mode)


def _by_size(columns: SpecColumns) -> Iterator[SpecColumns]:
    """Split where the payloads get too large for one statement."""
    total = sum(map(len, columns.payloads))
    if total > LARGE_PAYLOAD:
        warn_of_large_payloads(columns.identifiers, columns.payloads)
    if total <= CHUNK_BYTES:
        yield columns
        return
    places: list[int] = []
    size = 0
    for place, payload in enumerate(columns.payloads):
        if places and size + len(payload) > CHUNK_BYTES:
            yield columns.take(places)
            places, size = [], 0
        places.append(place)
        size += len(payload)
    yield columns.take(places)


def _check(batch: Sequence[JobSpec], first: int, keys: set[str]) -> None:
    """Reject what is wrong only in a batch."""
    for place, spec in enumerate(batch, start=first):
        if not isinstance(spec, JobSpec):
            raise InvalidArgumentError(f"specs[{place}]", f"expected a JobSpec, got {spec!r}")
        key = spec.job_key
        if key is None:
            continue
        if spec.job_key_mode == "unsafe_dedupe":
            raise InvalidArgumentError(
                f"specs[{place}].job_key_mode", "unsafe_dedupe works with add_job only, not in a batch"
            )
        if key in keys:
            raise InvalidArgumentError(
                f"specs[{place}].job_key", f"{key!r} occurs twice in this batch; keep only the last spec"
            )
        keys.add(key)
