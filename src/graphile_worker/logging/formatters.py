"""TextFormatter and JsonFormatter: log records for people and for machines.

Text: `2026-11-15 15:16:46.634 INFO [worker] task send_email (job 7) completed in 2.1 ms`, in local time, with
a traceback indented below. JSON: one object per line; `ts`, `level`, `logger`, `label`, `msg` and `pid` come
first, then the other fields of the record. For both there are outcomes on one line, times, and the fields of
structured logs.

Messages contain foreign text: payloads, server errors, output of programs. The text format escapes control
characters, so that none reaches the terminal and a line break cannot forge a log line.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec

from ..errors.text import MAX_SUMMARY, format_traceback, message_of, summarize, type_name
from ..hooks import events
from ..values.text import count
from .job_context import ROOT, add_job_fields, add_trace_fields, is_own, job_fields, with_job, without_job

KEYS = {
    "event": "event",
    "pool_id": "pool_id",
    "worker_id": "worker_id",
    "task_identifier": "task",
    "job_id": "job_id",
    "attempt": "attempt",
    "max_attempts": "max_attempts",
    "trace_id": "trace_id",
    "span_id": "span_id",
}
"""Attributes of a record that come first in JSON, in this order and under these names."""
INDENT = "    "
_encoder = msgspec.json.Encoder(enc_hook=str)
_UNSAFE = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters except tab, line separators, bidirectional controls, lone surrogates."""
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "label"}


class RunningPools:
    """The ids of the pools that run in this process, for records that do not say to which one they belong."""

    def __init__(self) -> None:
        self._ids: list[str] = []

    def add(self, pool_id: str) -> None:
        self._ids.append(pool_id)

    def remove(self, pool_id: str) -> None:
        if pool_id in self._ids:
            self._ids.remove(pool_id)

    @property
    def only(self) -> str | None:
        """The id of the pool if there is exactly one."""
        return self._ids[0] if len(self._ids) == 1 else None


running_pools = RunningPools()


class TextFormatter(logging.Formatter):
    """One line for people: time, level, origin and message.

    `TextFormatter(timestamps=False)` leaves the time out, for a reader that adds its own.
    """

    def __init__(self, *, timestamps: bool = True) -> None:
        super().__init__()
        self._timestamps = timestamps
        self._times = _Times(time.localtime, " ")

    def format(self, record: logging.LogRecord) -> str:
        """The record as text."""
        add_job_fields(record)
        text = escaped(f"{record.levelname} [{_label(record)}] {with_job(record)}")
        if self._timestamps:
            text = f"{self._times.text(record.created)} {text}"
        if record.exc_info or record.exc_text or record.stack_info:
            text += self._below(record)
        return text

    def _below(self, record: logging.LogRecord) -> str:
        """The traceback and the stack of a record, indented."""
        text = ""
        for block in (_traceback(self, record), record.stack_info):
            for line in block.split("\n") if block else ():
                text += f"\n{INDENT}{escaped(line)}" if line else "\n"
        return text


class JsonFormatter(logging.Formatter):
    """One JSON object per record; fields of `extra` become members."""

    def __init__(self) -> None:
        super().__init__()
        self._times = _Times(time.gmtime, "T")

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        add_job_fields(record)
        add_trace_fields(record)
        line: dict[str, Any] = {
            "ts": f"{self._times.text(record.created)}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "label": _label(record),
            "msg": without_job(record),
            "pid": record.process,
        }
        extra = {key: value for key, value in vars(record).items() if key not in _STANDARD}
        if extra.get("pool_id") is None and (only := running_pools.only) is not None:
            extra["pool_id"] = only
        line |= {key: extra.pop(name) for name, key in KEYS.items() if name in extra}
        line |= {key: value for key, value in extra.items() if key not in line}
        if (record.exc_info or record.exc_text) and (traceback := _traceback(self, record)):
            line["traceback"] = traceback
        if record.stack_info:
            line["stack"] = record.stack_info
        try:
            return _encoder.encode(line).decode()
        except BaseException:  # a lone surrogate, a cyclic structure, a failing __str__
            return msgspec.json.encode({key: _encodable(value) for key, value in line.items()}).decode()


class _Times:
    """Times to the millisecond. Most lines share their second with the one before."""

    def __init__(self, fields: Callable[[float], time.struct_time], separator: str) -> None:
        self._fields = fields
        self._format = f"%Y-%m-%d{separator}%H:%M:%S"
        self._last = (0, "")

    def text(self, seconds: float) -> str:
        whole = int(seconds)
        last, text = self._last
        if whole != last:
            text = time.strftime(self._format, self._fields(whole))
            self._last = (whole, text)
        return f"{text}.{int((seconds - whole) * 1000):03d}"


def escaped(text: str) -> str:
    """The text without line breaks and control characters: `\\n`, `\\x1b`, `\\u2028` replace them."""
    return text if text.isprintable() else _UNSAFE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return (
        found[0].encode("ascii", "backslashreplace").decode() if found[0] > "\x7f" else repr(found[0])[1:-1]
    )


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str | None:
    """The traceback of a record: its `exc_text`, else formatted here; never raises."""
    if record.exc_text:
        return record.exc_text
    if not record.exc_info or record.exc_info[1] is None:
        return None
    try:
        return formatter.formatException(record.exc_info)
    except BaseException:  # formatting runs code of the exception
        return format_traceback(record.exc_info[1])


def _encodable(value: Any) -> Any:
    try:
        msgspec.json.encode(value)
    except BaseException:
        try:
            return str(value).encode("utf-8", "backslashreplace").decode()
        except BaseException:
            return f"<{type(value).__name__}>"
    return value


def _label(record: logging.LogRecord) -> str:
    label = getattr(record, "label", None)
    if label:
        return str(label)
    return _label_of(record.name)


@lru_cache(maxsize=256)
def _label_of(name: str) -> str:
    """The label of the records of a logger."""
    return (name.removeprefix(ROOT).lstrip(".") or "core") if is_own(name) else name


def outcome_text(event: events.JobErrored | events.JobFailed) -> str:
    """The error of a job on one line; for a batch job, the number of failed items and their errors."""
    parts = event.batch_job_errors
    if not parts:
        return summarize(event.error)
    shown, length = [], 0
    for part in parts:
        shown.append(summarize(part))
        length += len(shown[-1])
        if length > MAX_SUMMARY:
            shown.append("…")
            break
    return f"{count(len(parts), 'item')} of the batch: {' | '.join(shown)}"


def job_scope(event: events.JobEvent) -> dict[str, Any]:
    """The fields that identify the event, the job, its pool and the slot."""
    fields = job_fields(event.job, event.worker_id)
    fields["event"] = event.name
    return fields


def pool_scope(event: events.PoolEvent | events.RecoveryEvent) -> dict[str, Any]:
    """The fields that identify the event and the pool."""
    return {"event": event.name, "pool_id": event.pool_id}


def worker_scope(event: events.WorkerEvent) -> dict[str, Any]:
    """The fields that identify the event and the slot."""
    return {"event": event.name, "worker_id": event.worker_id}


def error_fields(error: BaseException) -> dict[str, Any]:
    return {"error": message_of(error), "error_type": type_name(error)}


def failure_fields(event: events.JobErrored | events.JobFailed) -> dict[str, Any]:
    return error_fields(event.error) | {"duration_ms": milliseconds(event.duration)}


def milliseconds(seconds: float) -> float:
    """Seconds as milliseconds, to the microsecond."""
    return round(seconds * 1000, 3)


def minute(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"
