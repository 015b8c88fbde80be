"""OutputLines: from the chunks a child process writes to whole lines for a logger."""

from __future__ import annotations

import codecs
from collections.abc import Callable

LONGEST_LINE = 64 * 1024  # a child that writes no newline must not fill the memory


class OutputLines:
    """Passes each complete line to `log`; bytes that are not UTF-8 are replaced, empty lines left out."""

    def __init__(self, log: Callable[[str], object]) -> None:
        self._log = log
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        self._rest = ""
        self.last = ""
        """The last line that was passed on."""

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        *lines, self._rest = (self._rest + self._decode(data)).split("\n")
        for line in lines:
            self._pass_on(line)
        while len(self._rest) >= LONGEST_LINE:
            self._pass_on(self._rest[:LONGEST_LINE])
            self._rest = self._rest[LONGEST_LINE:]

    def finish(self) -> None:
        """There is no more: pass on what is left without a newline."""
        self._pass_on(self._rest + self._decode(b"", True))
        self._rest = ""

    def _pass_on(self, line: str) -> None:
        line = line.rstrip("\r")
        if line:
            self.last = line
            self._log(line)
