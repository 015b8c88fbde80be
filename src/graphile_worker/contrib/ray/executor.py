"""RayExecutor: the part in the worker. It does not import Ray."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import msgspec

from ...errors import ConfigError, ProcessDiedError
from ...executors.call import TaskCall
from ...executors.cluster import ClusterCalls, Connecting
from ...executors.ending import checked_seconds, end_call, follow_worker, value_after_end
from ...executors.location import where_is
from ...executors.messages import Ask
from ...executors.run_call import value_of
from ...recovery.registry.pool_state import ExecutorPlace
from ...tasks.stacks import TaskStack
from ...tasks.task import AnyTask
from .driver_handle import DriverHandle

if find_spec("ray") is None:  # pragma: no cover
    raise ImportError('RayExecutor needs Ray: pip install "graphile-worker[ray]"')

CONNECT_WITHIN = 60.0  # seconds; Ray itself takes some
ANSWER_WITHIN = 5.0  # seconds for the port of the head node

logger = logging.getLogger("graphile_worker.executors")


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
        self._calls = ClusterCalls()
        self._numbers: set[int] = set()
        self._unfollow: Callable[[], None] | None = None
        self._connecting = Connecting(self._connect, lambda driver: driver.is_open)

    async def start(self, tasks: Sequence[AnyTask]) -> None:
        """Connect to the cluster."""
        for task in tasks:
            where_is(task, "ray")
        await self._connecting.get()

    async def run(self, call: TaskCall) -> Any:
        """Run one job; see `TaskExecutor`."""
        driver = await self._connecting.get()
        if self._unfollow is None:
            self._unfollow = follow_worker(call, self._abort_all)
        with self._calls.added(call) as number:
            self._numbers.add(number)
            call.ask_stack = partial(self._stack, driver, number)
            try:
                return await self._run(driver, call, number)
            finally:
                self._numbers.discard(number)

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
        """Close the connection to the cluster."""
        if self._unfollow is not None:
            self._unfollow()
            self._unfollow = None
        self._connecting.stop()
        driver, self._connecting.current = self._connecting.current, None
        if driver is not None:
            await driver.close()

    def places(self, name: str) -> list[ExecutorPlace]:
        """Which node and process of the cluster runs which job. May be called from any thread."""
        return self._calls.places(name)

    async def _stack(self, driver: DriverHandle, number: int) -> TaskStack | None:
        return await self._calls.stacks.ask(number, lambda: driver.ask(Ask(number, "stack")))

    def _abort_all(self, reason: str) -> None:
        """Ask all tasks to end. They are cancelled later."""
        driver = self._connecting.current
        if driver is not None:
            for number in list(self._numbers):
                driver.ask(Ask(number, "abort", reason))

    async def _connect(self) -> DriverHandle:
        await self._knock()
        driver = DriverHandle(self._calls, self._address)
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
