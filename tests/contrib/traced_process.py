"""A task that runs in a process of its own and says in which trace it is."""

from __future__ import annotations

from pathlib import Path

from opentelemetry import trace

from graphile_worker import task


@task(executor="process")
def note_trace(payload: dict[str, str]) -> None:
    span = trace.get_current_span().get_span_context()
    Path(payload["file"]).write_text(f"{span.trace_id:032x} {span.span_id:016x}")
