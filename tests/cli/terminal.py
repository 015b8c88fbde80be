"""A command in a pseudo-terminal, and a minimal emulator of its screen."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

PATIENCE = 60.0
CONTROL = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|([\r\n\x08\x07])")


class Screen:
    """Emulates what the live view uses: colours, line breaks, moving up, erasing lines and wrapping."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.lines: list[str] = [""]
        self.wrapped: list[str] = []
        """Lines that were wrapped."""
        self._row = self._column = 0
        self._rest = ""

    def feed(self, text: str) -> None:
        text, self._rest = self._rest + text, ""
        if (cut := text.rfind("\x1b")) >= 0 and not CONTROL.match(text, cut):
            text, self._rest = text[:cut], text[cut:]
        position = 0
        for found in CONTROL.finditer(text):
            self._put(text[position : found.start()])
            position = found.end()
            self._control(found)
        self._put(text[position:])

    def _put(self, text: str) -> None:
        for char in text:
            if self._column == self.columns:
                self.wrapped.append(self.lines[self._row])
                self._down()
                self._column = 0
            line = self.lines[self._row].ljust(self._column)
            self.lines[self._row] = line[: self._column] + char + line[self._column + 1 :]
            self._column += 1

    def _down(self) -> None:
        self._row += 1
        if self._row == len(self.lines):
            self.lines.append("")

    def _control(self, found: re.Match[str]) -> None:
        parameters, command, single = found.groups()
        number = int(parameters) if parameters and parameters.isdecimal() else 1
        if single == "\r":
            self._column = 0
        elif single == "\n":
            self._down()
        elif command == "A":
            self._row = max(0, self._row - number)
        elif command == "K" and parameters == "2":
            self.lines[self._row] = ""
        elif command in ("J", "H", "B", "C", "D", "K"):
            raise AssertionError(f"the terminal of the tests does not know {found[0]!r}")

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def panel(self) -> list[str]:
        """The rows of the last panel, if it is complete."""
        starts = [number for number, line in enumerate(self.lines) if line.startswith("╭")]
        if not starts:
            return []
        rows = self.lines[starts[-1] :]
        ends = [number for number, line in enumerate(rows) if line.startswith("╰")]
        return rows[: ends[0] + 1] if ends else []


class Terminal:
    """A process with its own controlling terminal."""

    def __init__(
        self,
        command: Sequence[str],
        environment: dict[str, str],
        folder: Path,
        *,
        columns: int,
        rows: int = 40,
        stdout: int | None = None,
    ) -> None:
        """With `stdout`, standard output goes there and not to the terminal, as in `command > file`."""
        self.screen = Screen(columns)
        self.seen = ""
        """Everything that was written to the terminal, as it came."""
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.settings_at_first = self.settings()
        self.process = subprocess.Popen(
            command,
            env={**environment, "TERM": "xterm-256color", "LANG": "C.UTF-8"},
            cwd=folder,
            stdin=slave,
            stdout=slave if stdout is None else stdout,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self._decoded = b""

    def until(self, condition: Callable[[Screen], bool], what: str) -> Screen:
        """Read until the screen is as wanted."""
        deadline = time.monotonic() + PATIENCE
        while not condition(self.screen):
            assert time.monotonic() < deadline, f"{what} did not appear on:\n{self.screen.text}"
            if not self._read():
                assert condition(self.screen), f"ended before {what} appeared on:\n{self.screen.text}"
                break
        return self.screen

    def until_says(self, *words: str) -> Screen:
        return self.until(lambda screen: all(word in screen.text for word in words), repr(words))

    def until_panel_says(self, *words: str) -> Screen:
        return self.until(
            lambda screen: all(word in "\n".join(screen.panel) for word in words), f"{words} in the panel"
        )

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait(self) -> int:
        """Read to the end; the exit status."""
        while self._read():
            pass
        return self.process.wait(timeout=PATIENCE)

    def settings(self) -> list[Any]:
        """How the terminal is set up: echo, line mode and so on."""
        return termios.tcgetattr(self._master)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.wait()
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        os.close(self._master)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._master], [], [], 1.0)
        if not ready:
            return self.process.poll() is None
        data = b""
        with suppress(OSError):  # EIO: the other side is closed
            data = os.read(self._master, 65536)
        if not data:
            return False
        whole = self._decoded + data
        text = whole.decode(errors="ignore")
        self._decoded = whole[len(text.encode()) :] if whole[-1:] >= b"\x80" else b""
        self.seen += text
        self.screen.feed(text)
        return True
