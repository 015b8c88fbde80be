"""Messages between processes: JSON, one message per line."""

from __future__ import annotations

from typing import Any

import msgspec


def line(message: msgspec.Struct) -> bytes:
    """The message as it is sent."""
    return msgspec.json.encode(message) + b"\n"


class Lines:
    """Splits a stream into messages of one type; keeps the rest of an incomplete line."""

    def __init__(self, kind: Any) -> None:
        self._decoder = msgspec.json.Decoder(kind)
        self._rest: list[bytes] = []

    def feed(self, data: bytes) -> list[Any]:
        """The messages that are complete."""
        end = data.rfind(b"\n") + 1
        if end == 0:
            self._rest.append(data)
            return []
        complete = data[:end]
        if self._rest:
            complete = b"".join((*self._rest, complete))
            self._rest.clear()
        if end < len(data):
            self._rest.append(data[end:])
        found: list[Any] = self._decoder.decode_lines(complete)
        return found
