"""DriverHandle: the worker's end of the process that is connected to Ray.

`DriverSetup` is what the driver must know before its first call.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from typing import Any

import msgspec

from ...errors import ProcessDiedError
from ...executors.child_handle import ChildConnection, search_path
from ...executors.cluster import ClusterCalls
from ...executors.messages import (
    Answer,
    Body,
    CallMessage,
    ClusterNote,
    LogNote,
    LostCall,
    ReadyNote,
    StartFailure,
    levels,
    log_again,
)
from ...values.lines import line


class DriverSetup(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first message to the driver."""

    parent: int
    """The process id of the worker."""
    path: list[str]
    """`sys.path`."""
    levels: dict[str, int]
    """Levels of loggers by name."""
    address: str
    options: dict[str, Any]
    """Options of remote functions, such as `num_cpus`."""
    runtime_env: dict[str, Any] | None = None


MODULE = "graphile_worker.contrib.ray.driver"
CLOSE_WITHIN = 5.0  # seconds


class DriverHandle:
    """One connection to the cluster: its calls, and their answers."""

    def __init__(self, calls: ClusterCalls, address: str) -> None:
        self._calls = calls
        self._address = address
        self._answers: dict[int, asyncio.Future[Body | None]] = {}
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._failure = ""
        self._connection = ChildConnection(
            MODULE,
            Answer | LostCall | ReadyNote | StartFailure | ClusterNote,
            on_messages=self._received,
            on_exit=self._exited,
            is_busy=lambda: bool(self._answers),
        )
        self.ask = self._connection.ask
        self.is_open = False

    async def start(self, setup: dict[str, Any], within: float) -> None:
        """Connect to the cluster; ProcessDiedError if that is not possible."""
        message = DriverSetup(
            parent=os.getpid(),
            path=search_path(),
            levels=levels(),
            **setup,
        )
        try:
            await self._connection.start(message)
            await asyncio.wait((self._ready,), timeout=within)
            if not self._ready.done():
                raise ProcessDiedError(f"the Ray cluster at {self._address} did not answer in {within:g} s")
            await self._ready
            self.is_open = True
        finally:
            if not self.is_open:
                self._connection.signal(signal.SIGKILL)

    def send(self, message: CallMessage) -> asyncio.Future[Body | None]:
        """Have a call run; its answer, or ProcessDiedError."""
        answer: asyncio.Future[Body | None] = asyncio.get_running_loop().create_future()
        if not self.is_open:
            answer.set_exception(self._lost())
            return answer
        self._answers[message.number] = answer
        self._connection.write(line(message))
        return answer

    async def close(self) -> None:
        """End the connection. Ray ends what still runs."""
        self.is_open = False
        self._connection.close()
        if self._connection.watching is not None:
            await asyncio.wait((self._connection.watching,), timeout=CLOSE_WITHIN)
            self._connection.signal(signal.SIGKILL)
            with suppress(asyncio.CancelledError):
                await asyncio.wait((self._connection.watching,), timeout=CLOSE_WITHIN)

    def _received(self, messages: list[Any]) -> None:
        for message in messages:
            if isinstance(message, Answer):
                self._end(message.number, message.body)
            elif isinstance(message, LostCall):
                self._end(message.number, ProcessDiedError(message.text))
            elif isinstance(message, ReadyNote):
                if not self._ready.done():
                    self._ready.set_result(None)
            elif isinstance(message, StartFailure):
                self._failure = message.text
            elif isinstance(message, LogNote) and message.number == 0:
                log_again(message.record, None)
            else:
                self._calls.noted(message)

    def _end(self, number: int, answer: Body | ProcessDiedError | None) -> None:
        waiting = self._answers.pop(number, None)
        if waiting is None or waiting.done():
            return
        if isinstance(answer, ProcessDiedError):
            waiting.set_exception(answer)
        else:
            waiting.set_result(answer)

    def _exited(self, status: int | None) -> None:
        self.is_open = False
        for number in list(self._answers):
            self._end(number, self._lost())
        if not self._ready.done():
            why = self._failure or self._connection.failure or f"its process ended with status {status}"
            self._ready.set_exception(
                ProcessDiedError(f"the Ray cluster at {self._address} cannot be reached: {why}")
            )
            self._ready.exception()  # perhaps none waits any more

    def _lost(self) -> ProcessDiedError:
        why = f": {self._failure}" if self._failure else ""
        return ProcessDiedError(f"the connection to the Ray cluster was lost{why}")
