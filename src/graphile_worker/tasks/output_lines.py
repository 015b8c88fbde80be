"""OutputLines: splits the output of a child process into lines for a logger."""

from __future__ import annotations

import codecs
from collections.abc import Callable

MAX_LINE = 64 * 1024  # bounds memory when a child writes no newline


class OutputLines:
    """Passes each complete line to `log`; replaces bytes that are not UTF-8, skips empty lines."""

    def __init__(self, log: Callable[[str], object]) -> None:
        self._log = log
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        self._partial = ""
        self.last = ""
        """The last line passed to `log`."""

    def feed(self, data: bytes) -> None:
        """Process the next bytes."""
        *lines, self._partial = (self._partial + self._decode(data)).split("\n")
        for line in lines:
            self._emit(line)
        while len(self._partial) >= MAX_LINE:
            self._emit(self._partial[:MAX_LINE])
            self._partial = self._partial[MAX_LINE:]

    def finish(self) -> None:
        """Pass on the last line, which has no newline."""
        self._emit(self._partial + self._decode(b"", True))
        self._partial = ""

    def _emit(self, line: str) -> None:
        line = line.rstrip("\r")
        if line:
            self.last = line
            self._log(line)
