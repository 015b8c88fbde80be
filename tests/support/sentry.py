"""The real Sentry SDK with a transport that keeps what it would send."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.integrations.logging import LoggingIntegration
from sentry_sdk.transport import Transport

DSN = "https://public@sentry.invalid/1"


class Sent:
    """What was sent, by kind."""

    def __init__(self) -> None:
        self._items: list[tuple[str, Any]] = []
        self._lock = threading.Lock()

    def add(self, envelope: Envelope) -> None:
        with self._lock:
            for item in envelope.items:
                self._items.append((str(item.type), item.payload.json))

    def of(self, kind: str) -> list[Any]:
        sentry_sdk.flush(5)
        with self._lock:
            return [payload for each, payload in self._items if each == kind]

    @property
    def errors(self) -> list[Any]:
        return self.of("event")

    @property
    def check_ins(self) -> list[Any]:
        return self.of("check_in")

    def spans(self, op: str) -> list[dict[str, Any]]:
        """The spans of both modes alike: name, trace, span, parent, attributes."""
        return [span for span in (*self._transactions(), *self._streamed()) if span["op"] == op]

    def _transactions(self) -> Iterator[dict[str, Any]]:
        for transaction in self.of("transaction"):
            trace = transaction["contexts"]["trace"]
            yield {**trace, "name": transaction["transaction"], "data": trace.get("data") or {}}
            for span in transaction["spans"]:
                yield {**span, "name": span["description"]}

    def _streamed(self) -> Iterator[dict[str, Any]]:
        for batch in self.of("span"):
            for span in batch["items"]:
                data = {name: each["value"] for name, each in span["attributes"].items()}
                yield {**span, "op": data.get("sentry.op"), "data": data}


@contextmanager
def sentry_keeping(mode: str = "static", **options: Any) -> Iterator[Sent]:
    """Initialise the SDK, and close it at the end. `mode` is that of its traces: static or stream."""
    sent = Sent()

    class Keeping(Transport):
        def capture_envelope(self, envelope: Envelope) -> None:
            sent.add(envelope)

    options = {"dsn": DSN, "traces_sample_rate": 1.0, "trace_lifecycle": mode, **options}
    sentry_sdk.init(
        transport=Keeping, default_integrations=False, integrations=[LoggingIntegration()], **options
    )
    try:
        yield sent
    finally:
        sentry_sdk.get_client().close(timeout=0)
        sentry_sdk.get_global_scope().set_client(None)
