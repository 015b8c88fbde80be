"""The fingerprint of an error: the same for errors of one type from one place with alike messages."""

from __future__ import annotations

import re
from hashlib import blake2b

MAX_MESSAGE = 200
_FRAME = re.compile(r'^\s*\|?\s*File "(.+)", line \d+, in (.+)$', re.MULTILINE)
_LIBRARY = re.compile(r"[/\\](?:site-packages|dist-packages)[/\\]|[/\\]lib[/\\]python3\.\d+[/\\]")
_VARIABLE = re.compile(
    r"""'[^']*'|"[^"]*"|`[^`]*`"""  # quoted values
    r"|\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"  # UUIDs
    r"|\b0x[0-9a-fA-F]+\b|\b[0-9a-fA-F]*\d[0-9a-fA-F]*\b|\d+"
)


def fingerprint(task_identifier: str, error_type: str, message: str, traceback: str) -> str:
    """Sixteen hexadecimal digits."""
    parts = (task_identifier, error_type, place_in(traceback), template_of(message))
    return blake2b("\0".join(parts).encode("utf-8", "replace"), digest_size=8).hexdigest()


def template_of(message: str) -> str:
    """The first line of a message with numbers, ids and quoted values replaced by `…`."""
    line = message.strip().partition("\n")[0][:MAX_MESSAGE]
    return _VARIABLE.sub("…", line)


def place_in(traceback: str) -> str:
    """File and function of the innermost frame outside of libraries; without its line, which changes."""
    frames = _FRAME.findall(traceback)
    own = [frame for frame in frames if not _LIBRARY.search(frame[0])]
    for path, function in (own or frames)[-1:]:
        return f"{path} in {function}"
    return ""
