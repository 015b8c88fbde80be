"""Ends the processes of running jobs when this process is killed, whatever they do at that moment.

A killed process cannot end what it started, and a recovered job must not overlap with processes of its last
attempt. So each process group is announced to a guard: a shell that reads from a socket, which the kernel
closes when this process ends. Then it kills the groups that it knows. There is one guard per process.
"""

from __future__ import annotations

import atexit
import logging
import os
import socket
import subprocess
import threading

SCRIPT = """
trap '' HUP INT QUIT TERM
groups=
while read -r sign group; do
    case $sign in
    +) groups="$groups $group" ;;
    -)  rest=
        for each in $groups; do [ "$each" = "$group" ] || rest="$rest $each"; done
        groups=$rest ;;
    esac
done
for each in $groups; do kill -9 "-$each"; done
"""
"""Reads `+ 123` and `- 123`. Ignores SIGTERM, which service managers may send to every process."""

logger = logging.getLogger("graphile_worker.tasks")


class GroupGuard:
    """The process groups that must not outlive this process. May be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: set[int] = set()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._has_warned = False

    def watch(self, group: int) -> None:
        """Kill this group if this process ends before `forget`."""
        with self._lock:
            self._groups.add(group)
            if not self._send(f"+ {group}\n"):
                self._start()

    def forget(self, group: int) -> None:
        """The group has ended, or may continue to run."""
        with self._lock:
            if group in self._groups:
                self._groups.discard(group)
                self._send(f"- {group}\n")

    def dismiss(self) -> None:
        """End the guard if it has nothing to do; the next group starts another."""
        with self._lock:
            if not self._groups:
                self._end()

    def forget_all(self) -> None:
        """In a forked process: the groups are not its own, and it must not keep the socket open."""
        self._lock = threading.Lock()
        self._groups = set()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            self._process.returncode = 0  # not our child; prevents a warning from Popen
            self._process = None

    def _send(self, line: str) -> bool:
        """Whether the guard got the message; if it is gone or does not read, a new one is needed."""
        if self._socket is None:
            return False
        try:
            self._socket.send(line.encode(), getattr(socket, "MSG_NOSIGNAL", 0))
        except OSError:
            return False
        return True

    def _start(self) -> None:
        self._end()
        ours, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                ["/bin/sh", "-c", SCRIPT, "graphile-worker-guard"],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # a reader of our output must not wait for the guard
                cwd="/",
                start_new_session=True,  # Ctrl-C and a closed terminal must not end it
            )
        except OSError as error:
            ours.close()
            if not self._has_warned:
                self._has_warned = True
                logger.warning("if this worker is killed, processes of its tasks may keep running: %s", error)
            return
        finally:
            theirs.close()
        ours.setblocking(False)
        self._socket = ours
        self._send("".join(f"+ {group}\n" for group in sorted(self._groups)))

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()  # before its input is closed: it must not kill what another one guards
            process.wait()
        if self._socket is not None:
            self._socket.close()
            self._socket = None


guard = GroupGuard()
"""The guard of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=guard.forget_all)
atexit.register(guard.dismiss)
