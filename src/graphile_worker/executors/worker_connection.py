"""WorkerConnection: in a process that a worker has started, the sockets to that worker.

A thread listens to the second socket: the worker sends requests there, and its end closes when the worker is
gone. Then this process ends at once, whatever its main thread does.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NoReturn

from ..tasks.executables.process_group import members
from ..values.lines import Lines
from .messages import Ask

CHUNK = 256 * 1024
COMPANY_ENDS_WITHIN = 0.5  # seconds until processes that ignore SIGTERM are killed
PR_SET_PDEATHSIG = 1


class WorkerConnection:
    """Messages from and to the worker."""

    def __init__(self, work: int, control: int) -> None:
        """The descriptors of both sockets."""
        for descriptor in (work, control):
            os.set_inheritable(descriptor, False)
        self._work = socket.socket(fileno=work)
        self._control = socket.socket(fileno=control)
        self._sending = threading.Lock()

    def setup(self, kind: type[Any]) -> Any:
        """The first message; None if the worker has closed the connection."""
        first = Lines(kind)
        while data := self._work.recv(CHUNK):
            head, newline, rest = data.partition(b"\n")
            found = first.feed(head + newline)
            if found:
                if rest:
                    raise RuntimeError("the worker sent calls before this process was ready")
                return found[0]
        return None

    def messages(self, kind: type[Any]) -> Iterator[Any]:
        """All further messages, until the worker closes the connection."""
        lines = Lines(kind)
        while data := self._work.recv(CHUNK):
            yield from lines.feed(data)

    def listen(self, obey: Callable[[Ask], None]) -> None:
        """From now on obey requests, in a thread, and end with the worker."""
        arguments = (obey,)
        threading.Thread(
            target=self._listen, args=arguments, name="graphile-worker control", daemon=True
        ).start()

    def send(self, data: bytes) -> None:
        """Send messages; from any thread."""
        try:
            with self._sending:
                self._work.sendall(data)
        except OSError:  # the worker has closed its end
            end_now()

    def _listen(self, obey: Callable[[Ask], None]) -> NoReturn:
        asks = Lines(Ask)
        try:
            while data := self._control.recv(CHUNK):
                for ask in asks.feed(data):
                    obey(ask)
        except OSError:
            pass
        end_now()


def die_with(parent: int) -> None:
    """On Linux, have the kernel end this process with the worker, also while C code holds the interpreter."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        end_now()


def end_company() -> bool:
    """End the other processes in this group, which tasks started; returns whether there were any.

    They get SIGTERM, which this process handles, and SIGKILL if that does not help.
    """
    me = os.getpid()
    if members(me) in ([], [me]):
        return False
    os.killpg(me, signal.SIGTERM)
    started = time.monotonic()
    while company := [pid for pid in members(me) if pid != me]:
        waited = time.monotonic() - started
        if waited > 2 * COMPANY_ENDS_WITHIN:
            break  # not ours to end, such as a process of another user
        if waited > COMPANY_ENDS_WITHIN:
            for pid in company:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    return True


def end_now() -> NoReturn:
    """End this process and those that its tasks have started."""
    try:
        if os.getpgid(0) == os.getpid():
            os.killpg(0, signal.SIGKILL)
    finally:
        os._exit(1)


def one_line(error: BaseException) -> str:
    """The type and message of an error that keeps a process from starting."""
    from traceback import format_exception_only

    return " ".join("".join(format_exception_only(error)).split())
