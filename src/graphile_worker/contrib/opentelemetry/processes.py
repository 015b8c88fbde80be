"""The current context as text, to pass it to another process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from opentelemetry.context import attach, detach, get_current
from opentelemetry.trace import get_current_span

from .carried import context_in, member


def context_as_text() -> str | None:
    """The current context as a line of text; None if there is no span to continue."""
    context = get_current()
    span = get_current_span(context).get_span_context()
    return member(span, context) if span.is_valid else None


@contextmanager
def context_from_text(text: str | None) -> Iterator[None]:
    """`with context_from_text(text):` continues the trace of the process that wrote the text."""
    try:
        trace = None if text is None else msgspec.json.decode(text, type=dict)
    except msgspec.DecodeError:
        trace = None
    context = None if trace is None else context_in(trace)
    if context is None:
        yield
        return
    token = attach(context)
    try:
        yield
    finally:
        detach(token)
