"""DaskExecutor: runs tasks on a cluster of Dask. Needs the extra `dask`.

PostgreSQL keeps the job, its attempts and its recovery; Dask runs the function. A running function cannot be
stopped from outside there: it is asked to end, and then forgotten.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from ..errors import ConfigError, ProcessDiedError
from ..executors.call import TaskCall, value_after_end
from ..executors.child_handle import ANSWER_WITHIN
from ..executors.cluster import Cluster, run_there, running_call
from ..executors.location import where_is
from ..executors.messages import Body, ClusterNote
from ..executors.run_call import value_of
from ..recovery.registry.pool_state import ExecutorPlace
from ..tasks.stacks import TaskStack
from ..tasks.task import AnyTask

try:
    from distributed import Client, KilledWorker, get_worker
    from distributed.client import FutureCancelledError
    from distributed.diagnostics.plugin import UploadFile
except ImportError as error:  # pragma: no cover
    raise ImportError('DaskExecutor needs Dask: pip install "graphile-worker[dask]"') from error

__all__ = ["DaskExecutor"]
CONNECT_WITHIN = 10.0  # seconds
END_WITHIN = 3.0  # seconds for a task to notice that it should end, if the cause does not say

logger = logging.getLogger("graphile_worker.executors")

_note_decoder = msgspec.json.Decoder(ClusterNote)


class DaskExecutor:
    """Runs tasks on a Dask cluster: `run(executors={"cluster": DaskExecutor("tcp://scheduler:8786")})`.

    The code of the tasks must be installed on the machines of the cluster.
    """

    def __init__(
        self,
        address: str | Client,
        *,
        resources: Mapping[str, float] | None = None,
        priority: int = 0,
        upload_package: str | None = None,
    ) -> None:
        """`address`: that of the scheduler, or an asynchronous client, which the executor leaves open.

        `resources` and `priority`: as in `Client.submit`. `upload_package`: a zip, egg or Python file that is
        sent to all machines of the cluster.
        """
        if not isinstance(address, str | Client):
            raise ConfigError(f"DaskExecutor: expected the address of a scheduler, got {address!r}")
        if isinstance(address, Client) and not address.asynchronous:
            raise ConfigError("DaskExecutor: the client must be made with asynchronous=True")
        self._address = address if isinstance(address, str) else None
        self._cluster = Cluster[Any](self._connect, _is_open, self._abort_all)
        if self._address is None:
            self._cluster.current = address
        self._resources = dict(resources) if resources else None
        self._priority = priority
        self._package = upload_package
        self._topic = f"graphile-worker-{secrets.token_hex(6)}"
        self._asking: set[asyncio.Future[Any]] = set()

    async def start(self, tasks: Sequence[AnyTask]) -> None:
        for task in tasks:
            where_is(task, "dask")
        client = await self._cluster.get()
        if self._address is None:
            client.subscribe_topic(self._topic, self._noted)
        await _warn(client)

    async def run(self, call: TaskCall) -> Any:
        client = await self._cluster.get()
        with self._cluster.added(call) as number:
            key = self._key(number, call)
            call.ask_stack = partial(self._stack, client, key, call)
            return await self._run(client, call, number, key)

    def _key(self, number: int, call: TaskCall) -> str:
        """What the cluster calls it."""
        return f"{self._topic}-{number}-job-{call.job.id}-attempt-{call.job.attempts}"

    async def _run(self, client: Any, call: TaskCall, number: int, key: str) -> Any:
        future: Any = None
        try:
            future = client.submit(
                run_on_worker,
                msgspec.json.encode(call.message(number)),
                key,
                self._topic,
                key=key,
                pure=False,
                retries=0,
                priority=self._priority,
                resources=self._resources,
            )
            try:
                raw = await asyncio.shield(result := asyncio.ensure_future(_result(future)))
            except asyncio.CancelledError:
                if result.cancelled():
                    raise
                raw = await self._end(client, key, call, result)
                return value_after_end(lambda: _value(raw))
        except KilledWorker as error:
            raise ProcessDiedError(f"the Dask worker that ran the task died: {_first_line(error)}") from None
        except FutureCancelledError as error:
            raise ProcessDiedError(f"the Dask cluster has lost the task: {_first_line(error)}") from None
        finally:
            if future is not None:
                future.release()
        return _value(raw)

    async def close(self) -> None:
        """Close the connection, unless the client was passed."""
        client = self._cluster.release()
        if client is not None and self._address is not None:
            with suppress(Exception):
                await asyncio.wait_for(client.close(), CONNECT_WITHIN)

    def places(self, name: str) -> list[ExecutorPlace]:
        """Which machine of the cluster runs which job. May be called from any thread."""
        return self._cluster.places(name)

    async def _stack(self, client: Any, key: str, call: TaskCall) -> TaskStack | None:
        if call.place is None:
            return None
        asking = client.run(stack_on_worker, key, workers=[call.place], on_error="ignore")
        try:
            found = (await asyncio.wait_for(asking, ANSWER_WITHIN)).get(call.place)
        except (OSError, TimeoutError):
            return None
        return None if found is None else TaskStack(*found)

    def _abort_all(self, client: Any, reason: str) -> None:
        self._ask(client, [self._key(*each) for each in self._cluster.calls.items()], reason, cancels=False)

    def _ask(self, client: Any, keys: list[str], reason: str, *, cancels: bool) -> None:
        asking = asyncio.ensure_future(client.run(abort_on_worker, keys, reason, cancels, on_error="ignore"))
        self._asking.add(asking)
        asking.add_done_callback(self._asked)

    def _asked(self, asking: asyncio.Future[Any]) -> None:
        self._asking.discard(asking)
        if not asking.cancelled() and (error := asking.exception()) is not None:
            logger.debug("could not ask tasks on the Dask cluster to stop: %s", _first_line(error))

    async def _end(self, client: Any, key: str, call: TaskCall, result: asyncio.Future[bytes]) -> bytes:
        """Ask a task to end; after a while it is forgotten, and CancelledError raised."""
        signal = call.helpers.abort_signal
        limit = END_WITHIN if signal._grace is None else signal._grace
        self._ask(client, [key], signal.reason, cancels=True)
        try:
            await asyncio.wait((result,), timeout=limit)
        finally:
            if not result.done():
                result.cancel()
                with suppress(Exception):
                    await client.cancel([key], force=True)
                raise asyncio.CancelledError
        return result.result()

    async def _connect(self) -> Any:
        if self._address is None:
            raise ProcessDiedError("the client of Dask that was passed is closed")
        try:
            client: Any = await Client(  # type: ignore[no-untyped-call,unused-ignore]
                self._address, asynchronous=True, set_as_default=False, timeout=CONNECT_WITHIN
            )
        except (OSError, TimeoutError) as error:
            raise ProcessDiedError(
                f"the Dask scheduler at {self._address} cannot be reached: {_first_line(error)}"
            ) from None
        client.subscribe_topic(self._topic, self._noted)
        if self._package is not None:
            await client.register_plugin(UploadFile(self._package))
        return client

    def _noted(self, event: tuple[float, Any]) -> None:
        self._cluster.noted(_note_decoder.decode(event[1]))


def _is_open(client: Any) -> bool:
    return client.status not in ("closed", "closing")


def _value(raw: bytes) -> Any:
    return value_of(msgspec.json.decode(raw, type=Body | None))


async def _result(future: Any) -> bytes:
    raw: bytes = await future
    return raw


async def _warn(client: Any) -> None:
    """Say what is not as it should be on the cluster."""
    with suppress(Exception):  # the scheduler may lack this package
        allowed = await client.run_on_scheduler(allowed_failures)
        if allowed:
            logger.warning(
                "the Dask scheduler starts a task up to %d times when its worker dies (allowed-failures); "
                "set distributed.scheduler.allowed-failures to 0, so that only Graphile Worker retries",
                allowed + 1,
            )
    try:
        await client.get_versions(check=True)
    except ValueError as error:
        logger.warning("versions on the Dask cluster differ: %s", _first_line(error))


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


# -- on the cluster ----------------------------------------------------------------------------------------


def run_on_worker(data: bytes, key: str, topic: str) -> bytes:
    """Run a call on this machine of the cluster; its answer as JSON."""
    worker = get_worker()

    def send(note: ClusterNote) -> None:
        worker.loop.add_callback(worker.log_event, topic, msgspec.json.encode(note))

    return run_there(data, key, str(worker.address), send)


def abort_on_worker(keys: Sequence[str], reason: str, cancels: bool) -> None:
    """Ask calls on this machine to end."""
    for key in keys:
        if (running := running_call(key)) is not None:
            running.abort(reason, cancels=cancels)


def stack_on_worker(key: str) -> tuple[str, str] | None:
    """What a call on this machine does now."""
    return None if (running := running_call(key)) is None else msgspec.structs.astuple(running.stack())


def allowed_failures(dask_scheduler: Any) -> int:
    """How many workers may die of a task before the scheduler gives it up."""
    return int(dask_scheduler.allowed_failures)
