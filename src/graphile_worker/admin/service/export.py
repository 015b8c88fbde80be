"""Jobs as a file: JSON Lines or CSV, up to 10,000 in one request; the cursor goes on."""

from __future__ import annotations

import csv
import io
from typing import Literal

import msgspec

from ...database.statements.job_filter import JobFilter
from ..database import Database
from ..models.jobs import JobRow, ListOrder
from ..redact import Redactor
from ..show import csv_cell
from .jobs import list_jobs

MAX_JOBS = 10_000
AT_ONCE = 200
"""Jobs that are read and redacted before other requests get a turn."""
MAX_BYTES = 64 * 1024 * 1024
"""A file stops growing here; the cursor goes on."""
ExportFormat = Literal["jsonl", "csv"]
COLUMNS = (
    "id", "task", "state", "queue", "priority", "run_at", "attempts", "max_attempts", "created_at", "key",
    "flags", "revision", "locked_by", "locked_at", "failed_at", "last_error", "payload",
)  # fmt: skip


class Export(msgspec.Struct, frozen=True):
    """A file, and where the next one begins."""

    content: bytes
    next: str | None
    jobs: int


async def export_jobs(
    database: Database,
    filter: JobFilter,
    redactor: Redactor,
    format: ExportFormat,
    *,
    order: ListOrder | None = None,
    after: str | None = None,
    limit: int = MAX_JOBS,
) -> Export:
    """The jobs that match, redacted as everywhere."""
    parts = [_header(format)]
    size, jobs, cursor = len(parts[0]), 0, after
    while True:
        page = await list_jobs(
            database, filter, redactor, order=order, after=cursor, limit=min(AT_ONCE, limit - jobs),
            with_payload=True, search_running=True,
        )  # fmt: skip
        parts += [_line(format, row) for row in page.items]
        size += sum(len(part) for part in parts[-len(page.items) :]) if page.items else 0
        jobs, cursor = jobs + len(page.items), page.next
        is_stuck = page.searched is not None and not page.searched.is_complete
        if cursor is None or jobs >= limit or size > MAX_BYTES or is_stuck:
            return Export(b"".join(parts), cursor, jobs)


def _header(format: ExportFormat) -> bytes:
    return b"" if format == "jsonl" else _csv(list(COLUMNS))


def _line(format: ExportFormat, row: JobRow) -> bytes:
    if format == "jsonl":
        return msgspec.json.encode(row) + b"\n"
    return _csv([_cell(getattr(row, name)) for name in COLUMNS])


def _cell(value: object) -> str:
    if isinstance(value, msgspec.Raw):
        return csv_cell(bytes(value).decode())
    if isinstance(value, list):
        return csv_cell(" ".join(value))
    isoformat = getattr(value, "isoformat", None)
    return isoformat() if isoformat is not None else csv_cell(value)


def _csv(values: list[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow(values)
    return text.getvalue().encode("utf-8", "replace")
