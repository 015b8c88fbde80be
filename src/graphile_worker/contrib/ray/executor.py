"""RayExecutor: the part in the worker. It does not import Ray.

`DriverHandle` is the worker's end of the process that is connected to Ray.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from typing import Any

import msgspec

from ...errors import ConfigError, ProcessDiedError
from ...executors.call import TaskCall, checked_seconds, end_call, value_after_end
from ...executors.child_handle import ChildConnection, search_path
from ...executors.cluster import Cluster
from ...executors.location import where_is
from ...executors.messages import (
    Answer,
    Ask,
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
from ...executors.run_call import value_of
from ...recovery.registry.pool_state import ExecutorPlace
from ...tasks.stacks import TaskStack
from ...tasks.task import AnyTask
from ...values.lines import line

if find_spec("ray") is None:  # pragma: no cover
    raise ImportError('RayExecutor needs Ray: pip install "graphile-worker[ray]"')

CONNECT_WITHIN = 60.0  # seconds; Ray itself takes some
ANSWER_WITHIN = 5.0  # seconds for the port of the head node


class RayExecutor:
    """Runs tasks on a Ray cluster: `run(executors={"cluster": RayExecutor("10.0.0.5:6379")})`.

    The worker runs on a node of the cluster. The code of the tasks must be installed on its nodes, or be
    shipped with `runtime_env`.
    """

    def __init__(
        self,
        address: str = "auto",
        *,
        num_cpus: float = 1,
        num_gpus: float = 0,
        resources: Mapping[str, float] | None = None,
        runtime_env: Mapping[str, Any] | None = None,
        kill_after: float = 5.0,
    ) -> None:
        """`address`: that of the head node, or `auto` for the cluster that this machine belongs to.

        `num_cpus`, `num_gpus` and `resources`: what each job needs, as in `ray.remote`. `runtime_env`: as in
        `ray.init`; values that JSON knows. `kill_after`: seconds between the request to end and the end of
        the process that runs the task.
        """
        if not isinstance(address, str) or not address:
            raise ConfigError(f"RayExecutor: expected the address of a head node, got {address!r}")
        options: dict[str, Any] = {"num_cpus": _checked("num_cpus", num_cpus)}
        if _checked("num_gpus", num_gpus):
            options["num_gpus"] = num_gpus
        if resources:
            options["resources"] = {name: _checked(name, value) for name, value in resources.items()}
        self._kill_after = checked_seconds("kill_after", kill_after)
        self._address = address
        self._setup: dict[str, Any] = {"address": address, "options": options}
        if runtime_env is not None:
            self._setup["runtime_env"] = _plain(runtime_env)
        self._cluster = Cluster(self._connect, lambda driver: driver.is_open, self._abort_all)

    async def start(self, tasks: Sequence[AnyTask]) -> None:
        for task in tasks:
            where_is(task, "ray")
        await self._cluster.get()

    async def run(self, call: TaskCall) -> Any:
        driver = await self._cluster.get()
        with self._cluster.added(call) as number:
            call.ask_stack = partial(self._stack, driver, number)
            return await self._run(driver, call, number)

    async def _run(self, driver: DriverHandle, call: TaskCall, number: int) -> Any:
        answer = driver.send(call.message(number))
        try:
            return value_of(await asyncio.shield(answer))
        except asyncio.CancelledError:
            answer.add_done_callback(_seen)
            if call.started_at is None:  # it waits on the cluster
                driver.ask(Ask(number, "kill"))
                raise
            await end_call(
                call,
                answer,
                self._kill_after,
                ask=lambda reason: driver.ask(Ask(number, "cancel", reason)),
                interrupt=lambda: driver.ask(Ask(number, "interrupt")),
                kill=lambda: driver.ask(Ask(number, "kill")),
            )
            return value_after_end(lambda: value_of(answer.result()))

    async def close(self) -> None:
        driver = self._cluster.release()
        if driver is not None:
            await driver.close()

    def places(self, name: str) -> list[ExecutorPlace]:
        """Which node and process of the cluster runs which job. May be called from any thread."""
        return self._cluster.places(name)

    async def _stack(self, driver: DriverHandle, number: int) -> TaskStack | None:
        return await self._cluster.stacks.ask(number, lambda: driver.ask(Ask(number, "stack")))

    def _abort_all(self, driver: DriverHandle, reason: str) -> None:
        for number in self._cluster.calls:
            driver.ask(Ask(number, "abort", reason))

    async def _connect(self) -> DriverHandle:
        await self._knock()
        driver = DriverHandle(self._address, self._cluster.noted)
        try:
            await driver.start(self._setup, CONNECT_WITHIN)
        except BaseException:
            await driver.close()
            raise
        return driver

    async def _knock(self) -> None:
        """ProcessDiedError at once if nothing listens at the address. Ray would wait for minutes."""
        host, colon, port = self._address.rpartition(":")
        if not colon or not port.isdecimal():
            return
        host = host.rpartition("//")[2].strip("[]")
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                _, writer = await asyncio.open_connection(host, int(port))
            writer.close()
        except (OSError, TimeoutError) as error:
            why = str(error) or f"no answer within {ANSWER_WITHIN:g} s"
            raise ProcessDiedError(f"the Ray cluster at {self._address} cannot be reached: {why}") from None

    def __repr__(self) -> str:
        return f"RayExecutor({self._address!r})"


def _seen(answer: asyncio.Future[Any]) -> None:
    """The answer came too late; its error is of no interest."""
    if not answer.cancelled():
        answer.exception()


def _checked(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise ConfigError(f"{name}: expected a number, got {value!r}")
    return value


def _plain(runtime_env: Mapping[str, Any]) -> dict[str, Any]:
    try:
        msgspec.json.encode(dict(runtime_env))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"runtime_env: expected values that JSON knows: {error}") from None
    return dict(runtime_env)


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

    def __init__(self, address: str, on_note: Callable[[ClusterNote], None]) -> None:
        self._address = address
        self._on_note = on_note
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
        message = DriverSetup(parent=os.getpid(), path=search_path(), levels=levels(), **setup)
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
                self._on_note(message)

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
