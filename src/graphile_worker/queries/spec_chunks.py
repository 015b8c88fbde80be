"""Splitting a list of specs into chunks of one statement each, and rejecting conflicts between specs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from operator import attrgetter
from typing import Literal, NamedTuple

from ..errors import InvalidArgumentError
from ..spec import JobSpec
from ..unique import WHILES, While
from .large_payloads import LARGE_PAYLOAD, warn_of_large_payloads
from .spec_columns import SpecColumns, columns_of

_key_of = attrgetter("job_key")

CHUNK_SPECS = 1000
"""Specs per statement: more gains no speed and takes more memory, here and in the server."""
CHUNK_BYTES = 8 * 1024 * 1024
"""Payload bytes per statement, unless a single payload is larger."""


Mode = Literal["replace", "preserve_run_at"] | While
"""One of the job key modes, or while which a job with the key counts if all are unique."""


class Chunk(NamedTuple):
    """Specs for one statement, and what an add does if there is a job with its key."""

    columns: SpecColumns
    mode: Mode


def chunks_of(specs: Iterable[JobSpec], now: datetime | None) -> Iterator[Chunk]:
    """The specs in chunks, in order; `now` replaces the server's clock."""
    remaining = iter(specs)
    keys: set[str] = set()
    first = 0
    while chunk := list(islice(remaining, CHUNK_SPECS)):
        if _is_simple(chunk):
            parts: Iterable[tuple[list[JobSpec], Mode]] = [(chunk, "replace")]
        else:
            _check(chunk, first, keys)
            parts = _by_mode(chunk)
        for part, mode in parts:
            columns = columns_of(part, first=first, now=now)
            for piece in _by_size(columns):
                yield Chunk(piece, mode)
            first += len(part)


def _is_simple(chunk: list[JobSpec]) -> bool:
    """Whether all specs are plain JobSpecs without keys, as usual: no conflicts, and no mode matters."""
    return set(map(type, chunk)) == {JobSpec} and not any(map(_key_of, chunk))


def _by_mode(chunk: list[JobSpec]) -> Iterator[tuple[list[JobSpec], Mode]]:
    """Split where the mode changes: a statement takes one mode for all its specs."""
    part: list[JobSpec] = []
    mode: Mode | None = None
    for spec in chunk:
        own = _mode_of(spec)
        if part and own != mode and (mode in WHILES or own in WHILES or None not in (mode, own)):
            yield part, mode or "replace"
            part, mode = [], None
        part.append(spec)
        mode = own or mode
    yield part, mode or "replace"


def _mode_of(spec: JobSpec) -> Mode | None:
    """None for a job without a key, which fits any job key mode."""
    if spec.unique is not None:
        return spec.unique.while_
    if spec.job_key is None:
        return None
    return "preserve_run_at" if spec.job_key_mode == "preserve_run_at" else "replace"


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


def _check(chunk: Sequence[JobSpec], first: int, keys: set[str]) -> None:
    """Reject what is wrong only among several."""
    for place, spec in enumerate(chunk, start=first):
        if not isinstance(spec, JobSpec):
            raise InvalidArgumentError(f"specs[{place}]", f"expected a JobSpec, got {spec!r}")
        key = spec.job_key
        if key is None or spec.unique is not None:
            continue
        if spec.job_key_mode == "unsafe_dedupe":
            raise InvalidArgumentError(
                f"specs[{place}].job_key_mode", "unsafe_dedupe works with add_job only, not with add_jobs"
            )
        if key in keys:
            raise InvalidArgumentError(
                f"specs[{place}].job_key", f"{key!r} occurs twice in this call; keep only the last spec"
            )
        keys.add(key)
