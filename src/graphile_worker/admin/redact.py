"""Redaction: what looks like a secret is hidden before anything leaves the server.

In payloads, the values of members with telling names, at any depth, of the paths that `redact=` names, and
passwords in URLs. In errors and tracebacks, passwords in URLs and what follows a telling name, as in
`token=...`. `Redactor.payload` works on the JSON text, so numbers stay as they were written.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from . import json_text
from .settings import AppSettings, FormatPayload

HIDDEN = "[redacted]"
NAMES = (
    "password", "passwd", "passphrase", "secret", "token", "apikey", "authorization", "cookie", "session",
    "credential", "privatekey",
)  # fmt: skip
"""Parts of names whose values are hidden, without `_` and `-`, in lower case."""
_IN_TEXTS = (
    r"pass[_-]?word|passwd|passphrase|secret|token|api[_-]?key|authorization|cookie|session|credential"
    r"|private[_-]?key"
)
# Every repetition is bounded: texts are hostile.
_URL = re.compile(r"(://[^\s/:@]{0,200}):[^\s@]{1,200}@")
_NAMED = re.compile(
    rf"((?:{_IN_TEXTS})[\w-]{{0,60}})([\"']?\]?\s{{0,8}}[:=]\s{{0,8}})"
    r"((?:bearer|basic|digest)\s{1,8})?(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s,;&)}\]]+)",
    re.IGNORECASE,
)
_ARE_ERRORS = ("error", "exception", "warning", "expired", "invalid")
_SEPARATORS = str.maketrans("", "", "_- ")

logger = logging.getLogger("graphile_worker.admin")


class Redactor:
    """Hides secrets by name, by path, and in texts."""

    def __init__(self, paths: Sequence[str] = (), format_payload: FormatPayload | None = None) -> None:
        """`paths` such as `card.number` hide members at the end of any path; `*` stands for one name."""
        self._paths = [path.split(".") for path in paths if path]
        self._format = format_payload

    @classmethod
    def of(cls, settings: AppSettings) -> Redactor:
        return cls(settings.redact, settings.format_payload)

    @property
    def replaces_payloads(self) -> bool:
        """Whether a function of the user decides what is shown of payloads."""
        return self._format is not None

    def payload(self, raw: str, task: str) -> str:
        """The JSON text of a payload without secrets, or what `format_payload` makes of it."""
        if self._format is not None:
            return self._formatted(self._format, raw, task)
        return self.json(raw)

    def json(self, raw: str) -> str:
        """A JSON text without secrets."""
        if not self._may_have_secrets(raw):
            return raw
        kept: list[str] = []
        skipped = 0  # how deep inside of a hidden value
        is_hidden = is_changed = False
        for kind, symbol, path in json_text.walk(raw):
            if skipped:
                skipped += {"open": 1, "close": -1}.get(kind, 0)
            elif kind == "name":
                kept.append(symbol)
                is_hidden = self.hides(path)
            elif kind in ("open", "value") and is_hidden and path and self.hides(path):
                kept.append(json_text.quoted(HIDDEN))
                is_changed = True
                skipped = 1 if kind == "open" else 0
            elif kind == "value" and json_text.is_text(symbol):
                kept.append(self._text_symbol(symbol))
                is_changed = is_changed or kept[-1] != symbol
            else:
                kept.append(symbol)
        return "".join(kept) if is_changed else raw

    def hides(self, path: Sequence[str]) -> bool:
        """Whether the member at this path is hidden, itself or with one above it."""
        names = [name for name in path if not name.isdecimal()]
        if any(_is_telling(name) for name in names):
            return True
        return any(
            _ends_with(names[:end], wanted) for wanted in self._paths for end in range(1, len(names) + 1)
        )

    def text(self, text: str) -> str:
        """An error or a traceback without secrets."""
        return _NAMED.sub(_named, _URL.sub(rf"\1:{HIDDEN}@", text))

    def optional_text(self, text: str | None) -> str | None:
        return None if text is None else self.text(text)

    def _may_have_secrets(self, raw: str) -> bool:
        """A quick look, so that most payloads are passed on as they are."""
        if self._paths or "\\u" in raw or "://" in raw or "\\/" in raw:
            return True
        squeezed = raw.lower().translate(_SEPARATORS)
        return any(name in squeezed for name in NAMES)

    def _text_symbol(self, symbol: str) -> str:
        text = json_text.text_of(symbol)
        redacted = _URL.sub(rf"\1:{HIDDEN}@", text)
        return symbol if redacted == text else json_text.quoted(redacted)

    def _formatted(self, format: FormatPayload, raw: str, task: str) -> str:
        """What the user's function returns, redacted all the same."""
        try:
            value: Any = format(task, msgspec.json.decode(raw))
            return self.json(msgspec.json.encode(value).decode())
        except Exception:
            logger.exception("format_payload failed for a payload of %s; the payload is not shown", task)
            return json_text.quoted("[format_payload failed]")


def _is_telling(name: str) -> bool:
    squeezed = name.lower().translate(_SEPARATORS)
    return any(part in squeezed for part in NAMES)


def _ends_with(names: Sequence[str], wanted: Sequence[str]) -> bool:
    if len(names) < len(wanted):
        return False
    return all(pattern in ("*", name) for name, pattern in zip(names[-len(wanted) :], wanted, strict=True))


def _named(found: re.Match[str]) -> str:
    name, separator, scheme = found[1], found[2], found[3] or ""
    if name.lower().endswith(_ARE_ERRORS):
        return found[0]
    return f"{name}{separator}{scheme}{HIDDEN}"
