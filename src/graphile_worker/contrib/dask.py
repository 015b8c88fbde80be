"""DaskExecutor: runs tasks on a cluster of Dask. Needs the extra `dask`.

PostgreSQL keeps the job, its attempts and its recovery; Dask runs the function. A running function cannot be
stopped from outside there: it is asked to end, and then forgotten.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from ..errors import ConfigError, ProcessDiedError
from ..executors.call import TaskCall
from ..executors.location import where_is
from ..executors.log_records import SendingHandler, log_again
from ..executors.messages import Body, CallMessage, LogNote, ProgressNote, StartedNote
from ..executors.remote_helpers import RemoteHelpers, remote_services
from ..executors.run_call import Tasks, job_of, run_call, value_of
from ..history.progress import Report
from ..recovery.pool_state import ExecutorPlace
from ..tasks.task import AnyTask

try:
    from distributed import Client, KilledWorker, get_worker
    from distributed.client import FutureCancelledError
    from distributed.diagnostics.plugin import UploadFile
except ImportError as error:  # pragma: no cover
    raise ImportError('DaskExecutor needs Dask: pip install "graphile-worker[dask]"') from error

CONNECT_WITHIN = 10.0  # seconds
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0  # seconds after the scheduler could not be reached
END_WITHIN = 3.0  # seconds for a task to notice that it should end, if the cause does not say

logger = logging.getLogger("graphile_worker.executors")

_note_decoder = msgspec.json.Decoder(LogNote | ProgressNote | StartedNote)


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
        self._client: Any = None if isinstance(address, str) else address
        self._resources = dict(resources) if resources else None
        self._priority = priority
        self._package = upload_package
        self._topic = f"graphile-worker-{secrets.token_hex(6)}"
        self._numbers = itertools.count(1)
        self._calls: dict[int, TaskCall] = {}
        self._connecting = asyncio.Lock()
        self._may_connect_at = 0.0
        self._pause = FIRST_PAUSE

    async def start(self, tasks: Sequence[AnyTask]) -> None:
        """Connect to the scheduler."""
        for task in tasks:
            where_is(task, "dask")
        client = await self._connected()
        await _warn(client)

    async def run(self, call: TaskCall) -> Any:
        """Run one job; see `TaskExecutor`."""
        number = next(self._numbers)
        key = f"{self._topic}-{number}-job-{call.job.id}-attempt-{call.job.attempts}"
        client = await self._connected()
        self._calls[number] = call
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
                raw: bytes = await asyncio.shield(result := asyncio.ensure_future(_result(future)))
            except asyncio.CancelledError:
                if result.cancelled():
                    raise
                raw = await self._end(client, key, call, result)
        except KilledWorker as error:
            raise ProcessDiedError(f"the Dask worker that ran the task died: {_first_line(error)}") from None
        except FutureCancelledError as error:
            raise ProcessDiedError(f"the Dask cluster has lost the task: {_first_line(error)}") from None
        finally:
            self._calls.pop(number, None)
            if future is not None:
                future.release()
        return value_of(msgspec.json.decode(raw, type=Body | None))

    async def close(self) -> None:
        """Close the connection, unless the client was passed."""
        if self._client is not None and self._address is not None:
            client, self._client = self._client, None
            with suppress(Exception):
                await asyncio.wait_for(client.close(), CONNECT_WITHIN)

    def places(self, name: str) -> list[ExecutorPlace]:
        """Which machine of the cluster runs which job. May be called from any thread."""
        return [
            ExecutorPlace(executor=name, place=call.place, job_id=call.job.id)
            for call in list(self._calls.values())
            if call.place is not None
        ]

    async def _end(self, client: Any, key: str, call: TaskCall, result: asyncio.Future[bytes]) -> bytes:
        """Ask a task to end; after a while it is forgotten, and CancelledError raised."""
        signal = call.helpers.abort_signal
        limit = END_WITHIN if signal._grace is None else signal._grace
        asking = asyncio.ensure_future(client.run(abort_on_worker, key, signal.reason, on_error="ignore"))
        try:
            await asyncio.wait((result,), timeout=limit)
        finally:
            asking.cancel()
            if not result.done():
                result.cancel()
                with suppress(Exception):
                    await client.cancel([key], force=True)
                raise asyncio.CancelledError
        return result.result()

    async def _connected(self) -> Any:
        """The client; connects again, after a growing pause, if the scheduler was lost."""
        async with self._connecting:
            if self._client is not None and self._client.status not in ("closed", "closing"):
                return self._client
            if self._address is None:
                raise ProcessDiedError("the client of Dask that was passed is closed")
            if (wait := self._may_connect_at - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            try:
                client: Any = await Client(  # type: ignore[no-untyped-call,unused-ignore]
                    self._address, asynchronous=True, set_as_default=False, timeout=CONNECT_WITHIN
                )
            except (OSError, TimeoutError) as error:
                self._may_connect_at = time.monotonic() + self._pause
                self._pause = min(2 * self._pause, LONGEST_PAUSE)
                raise ProcessDiedError(
                    f"the Dask scheduler at {self._address} cannot be reached: {_first_line(error)}"
                ) from None
            self._client, self._pause = client, FIRST_PAUSE
            client.subscribe_topic(self._topic, self._noted)
            if self._package is not None:
                await client.register_plugin(UploadFile(self._package))
            return client

    def _noted(self, event: tuple[float, Any]) -> None:
        """A note of a task has arrived."""
        note = _note_decoder.decode(event[1])
        call = self._calls.get(note.number)
        if call is None:
            return
        if isinstance(note, StartedNote):
            call.started_at, call.place = time.monotonic(), note.place
        elif isinstance(note, LogNote):
            log_again({**note.record, "name": call.helpers._services.logger.name}, call.helpers)
        elif (receive := call.helpers._services.progress.receive) is not None:
            receive(call.job.id, note.report)


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


class _RunningCall:
    """A call in this process of the cluster."""

    def __init__(self, helpers: RemoteHelpers) -> None:
        self.helpers = helpers
        self._coroutine: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None

    def abort(self, reason: str) -> None:
        """Ask the task to end; a coroutine is cancelled."""
        self.helpers.abort_signal.set(reason or "the worker is stopping")
        if self._coroutine is not None:
            loop, coroutine = self._coroutine
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(coroutine.cancel)

    def run(self, awaitable: Awaitable[Any]) -> Any:
        """Run a coroutine in a loop of its own."""
        return asyncio.run(self._run(awaitable))

    async def _run(self, awaitable: Awaitable[Any]) -> Any:
        current = asyncio.current_task()
        if current is not None:
            self._coroutine = asyncio.get_running_loop(), current
        try:
            return await awaitable
        finally:
            self._coroutine = None


_running: dict[str, _RunningCall] = {}
_tasks = Tasks()


def run_on_worker(data: bytes, key: str, topic: str) -> bytes:
    """Run a call on this machine of the cluster; its answer as JSON."""
    call = msgspec.json.decode(data, type=CallMessage)
    worker = get_worker()

    def note(message: msgspec.Struct) -> None:
        worker.loop.add_callback(worker.log_event, topic, msgspec.json.encode(message))

    def progress(job_id: int, report: Report) -> None:
        note(ProgressNote(call.number, report))

    def log(record: dict[str, Any]) -> None:
        note(LogNote(call.number, record))

    job_logger = logging.Logger("graphile_worker.job")
    job_logger.addHandler(SendingHandler(log))
    services = remote_services(progress=progress, logger=job_logger)
    helpers = RemoteHelpers(job_of(call), services, call.worker_id)
    running = _running[key] = _RunningCall(helpers)
    note(StartedNote(call.number, str(worker.address)))
    try:
        body = run_call(call, _tasks, helpers, partial(_RunningCall.run, running))
    finally:
        del _running[key]
    return msgspec.json.encode(body)


def abort_on_worker(key: str, reason: str) -> None:
    """Ask a call on this machine to end."""
    if (running := _running.get(key)) is not None:
        running.abort(reason)


def allowed_failures(dask_scheduler: Any) -> int:
    """How many workers may die of a task before the scheduler gives it up."""
    return int(dask_scheduler.allowed_failures)
