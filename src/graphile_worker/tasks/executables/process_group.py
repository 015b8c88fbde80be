"""The processes of a task: a group that ends as a whole, also when the worker is killed.

A `ProcessGroup` is a process that runs a task, and everything that it starts. The process leads its own
session, so Ctrl-C in the terminal reaches the worker only, for a graceful shutdown. A signal to the group
also reaches the processes that the leader has started, unless they have left it by starting a session of
their own. Built on `Popen` rather than asyncio's processes: the guard must know the group before anything
else can happen, and the leader is reaped last, because that reserves its number.

The `GroupGuard` ends the processes of running jobs when this process is killed, whatever they do at that
moment. A killed process cannot end what it started, and a recovered job must not overlap with processes of
its last attempt. So each process group is announced to a guard: a shell that reads from a socket, which the
kernel closes when this process ends. Then it kills the groups that it knows. There is one guard per process.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO

FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.2  # seconds between two looks at a group
SHUTDOWN_LIMIT = 3.0
"""Seconds between SIGTERM and SIGKILL in a shutdown, which waits only a few for cancelled tasks."""
UNKNOWN_STATUS = 255
"""The exit status of a process that something else has reaped."""
CAN_PEEK = hasattr(os, "waitid")
"""Whether the system says how a process ended without reaping it."""


class ProcessGroup:
    """Starts the process. The event loop must be running."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
        pipes: bool = False,
        ends_together: bool,
    ) -> None:
        """OSError if the process cannot be started.

        `pipes`: its standard streams are ours; otherwise it has no input, and the output of this process.
        `ends_together`: when the process has ended, the rest of its group is killed.
        """
        self._loop = asyncio.get_running_loop()
        self._ends_together = self._is_released = ends_together
        self._is_over = False
        # In the thread of the event loop: the kernel can end a process with the thread that started it.
        self._process = subprocess.Popen(  # noqa: S603 - the program that was asked for
            command,
            env=None if environment is None else dict(environment),
            pass_fds=pass_fds,
            stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
            stdout=subprocess.PIPE if pipes else None,
            stderr=subprocess.PIPE if pipes else None,
            bufsize=0,
            start_new_session=True,
        )
        self.pid = self._process.pid
        """The leader's pid, which is also the number of the group."""
        guard.watch(self.pid)
        self.exited: asyncio.Future[int] = self._loop.create_future()
        """The leader's exit status; if negative, the number of the signal that ended it."""
        self._wait_for_exit()

    @property
    def streams(self) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
        """Its standard input, output and error output."""
        process = self._process
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise RuntimeError("the process has no pipes")
        return process.stdin, process.stdout, process.stderr

    def signal(self, number: int) -> None:
        """Send a signal to the leader, unless it has ended."""
        if not self.exited.done():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, number)

    def signal_all(self, number: int) -> None:
        """Send a signal to the group, also when its leader has ended."""
        if not self._is_over:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    async def wait_for_all(self, timeout: float) -> None:
        """Wait until no process in the group is alive, for at most this many seconds."""
        deadline = self._loop.time() + timeout
        await asyncio.wait((self.exited,), timeout=timeout)
        pause = FIRST_PAUSE
        while (left := deadline - self._loop.time()) > 0 and len(await asyncio.to_thread(members, self.pid)):
            await asyncio.sleep(min(pause, left))
            pause = min(2 * pause, LONGEST_PAUSE)

    def release(self) -> None:
        """The worker is done with it. If the leader has ended, the rest of the group may continue to run."""
        self._is_released = True
        if self.exited.done() and not self._is_over:
            self._is_over = True
            guard.forget(self.pid)
            self._process.wait()  # last: another group may have its number from now on

    # -- the end of the leader -----------------------------------------------------------------------------

    def _wait_for_exit(self) -> None:
        try:
            descriptor = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # another system, or an old kernel
            name = f"graphile-worker process {self.pid}"
            threading.Thread(target=self._wait_in_thread, name=name, daemon=True).start()
        else:
            self._loop.add_reader(descriptor, self._on_readable, descriptor)

    def _on_readable(self, descriptor: int) -> None:
        self._loop.remove_reader(descriptor)
        os.close(descriptor)
        self._ended(self._status())

    def _wait_in_thread(self) -> None:
        status = self._status()
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._ended, status)

    def _status(self) -> int:
        """Wait for the leader's end; its exit status."""
        if not CAN_PEEK:
            return self._process.wait()
        try:
            result = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            return UNKNOWN_STATUS
        assert result is not None  # noqa: S101 - only with WNOHANG
        return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status

    def _ended(self, status: int) -> None:
        if self._ends_together:
            self.signal_all(signal.SIGKILL)
        self.exited.set_result(status)
        if self._is_released:
            self.release()


def members(group: int) -> list[int]:
    """The processes of a group that are alive."""
    if not os.path.exists("/proc/self/stat"):
        return _members_by_ps(group)
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError):
                with open(f"/proc/{name}/stat", "rb") as file:
                    state, _, number = file.read().rpartition(b")")[2].split()[:3]
                if int(number) == group and state not in (b"Z", b"X"):
                    found.append(int(name))
    return found


def _members_by_ps(group: int) -> list[int]:
    command = ["/bin/ps", "-A", "-o", "pid=,pgid=,stat="]
    try:  # in its own session: it must not find itself
        answer = subprocess.run(command, capture_output=True, check=False, start_new_session=True)  # noqa: S603
    except OSError:
        return []
    rows = (line.split() for line in answer.stdout.splitlines())
    return [int(row[0]) for row in rows if int(row[1]) == group and not row[2].startswith(b"Z")]


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
