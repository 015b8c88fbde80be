"""Runs one call where it has arrived: finds the task, calls it, and turns what it did into an answer.

The same for processes, Dask and Ray. What differs is how coroutines are run and where notes go.

`RemoteHelpers` are the helpers of a task there. Job, logger, abort signal and progress are available. What
needs the worker's database connections is not, and says so.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import ExitStack
from contextvars import copy_context
from functools import cache
from typing import Any, NoReturn, TypeVar, cast

import msgspec

from ..errors import InvalidArgumentError, JobError, JobInterruptedError
from ..history.task_reports import ProgressReport
from ..tasks.call import may_be_batch
from ..tasks.helpers import JobHelpers, SyncHelpers
from ..tasks.services import Extensions, ProgressSink, QueueNames, WorkerServices
from ..values.job import Job, current_helpers
from ..values.payload import encode
from . import location
from .messages import Body, CallMessage, ErrorMessage, error_message, error_of

Await = Callable[[Awaitable[Any]], Any]
"""Runs an awaitable to its end."""


find_task, find_function = cache(location.find_task), cache(location.find_function)
"""What was found is kept; what could not be imported is looked for again."""


def job_of(call: CallMessage) -> Job:
    return Job(*call.job)


def run_call(call: CallMessage, helpers: RemoteHelpers, run: Await) -> Body | None:
    """The answer to a call; None if the task returned None. Raises nothing."""
    return copy_context().run(_answer, call, helpers, run)


def _answer(call: CallMessage, helpers: RemoteHelpers, run: Await) -> Body | None:
    current_helpers.set(helpers)
    try:
        with ExitStack() as stack:
            for restore, text in call.context:
                stack.enter_context(find_function(restore)(text))
            job = helpers.job
            task = find_task(call.where, job.task_identifier)
            result = task._invoke(task._decode(job.raw_payload), helpers)
            if result is None:
                return None
            while inspect.isawaitable(result):
                result = run(result)
            return body_of(result, job.raw_payload, run)
    except (asyncio.CancelledError, KeyboardInterrupt) as error:  # Ray interrupts tasks with the latter
        signal = helpers.abort_signal
        ended = JobInterruptedError(signal.reason) if signal.is_set() else JobError("the task was cancelled")
        ended.__cause__ = error
        return Body(error=error_message(ended))
    except BaseException as error:  # sys.exit() in a task fails the job, not the process
        return Body(error=error_message(error))


def body_of(result: Any, raw_payload: str, run: Await) -> Body | None:
    """What a task returned, as a message."""
    if result is None:
        return None
    if isinstance(result, BaseException):  # a directive that was returned
        return Body(error=error_message(result))
    if may_be_batch(result) and raw_payload.lstrip().startswith("["):
        batch = _batch(result, run)
        if batch is not None:
            return Body(batch=batch)
    try:
        return Body(result=msgspec.Raw(_on_one_line(encode(result))))
    except InvalidArgumentError as error:
        return Body(problem=str(error).removeprefix("payload: "))


def _batch(result: Any, run: Await) -> tuple[ErrorMessage | None, ...] | None:
    """The errors of the items of a batch; None if it has neither errors nor awaitables."""
    if any(map(inspect.isawaitable, result)):
        result = run(_gathered(result))
    elif not any(isinstance(item, BaseException) for item in result):
        return None
    return tuple(error_message(item) if isinstance(item, BaseException) else None for item in result)


async def _gathered(items: Any) -> list[Any]:
    """What all items returned or raised; waits for all, also if they are cancelled."""
    return await asyncio.gather(*map(_item, items), return_exceptions=True)


async def _item(item: Any) -> Any:
    try:
        return await item if inspect.isawaitable(item) else item
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # SystemExit too, which would end the event loop
        return error


def _on_one_line(text: str) -> bytes:
    raw = text.encode()
    return raw if b"\n" not in raw else msgspec.json.encode(msgspec.json.decode(raw))


def value_of(body: Body | None) -> Any:
    """What the task returned, in the worker; raises what it raised."""
    if body is None:
        return None
    if body.error is not None:
        raise error_of(body.error)
    if body.batch is not None:
        return [None if error is None else error_of(error) for error in body.batch]
    if body.problem is not None:
        from ..history.task_reports import UnsendableResult

        return UnsendableResult(body.problem)
    return msgspec.json.decode(body.result)


T = TypeVar("T")


class RemoteHelpers(JobHelpers):
    """What a task gets outside of the worker: `job`, `logger`, `abort_signal` and `progress`."""

    @property
    def sync(self) -> SyncHelpers:
        """Blocking forms of the methods, for tasks that are plain functions."""
        return _RemoteSyncHelpers(self, self._services.loop)

    def __repr__(self) -> str:
        return f"<RemoteHelpers of job {self.job.id} ({self.job.task_identifier})>"


def remote_services(
    *, progress: Callable[[int, ProgressReport], None], logger: logging.Logger
) -> WorkerServices:
    """What all tasks of this process share."""
    sink = ProgressSink()
    sink.connect(progress)
    return WorkerServices(
        client=cast(Any, _Nothing()),
        acquire=_no_connection,
        queue_names=cast(QueueNames, _Nothing()),
        loop=cast(asyncio.AbstractEventLoop, None),
        extensions=_NO_EXTENSIONS,
        progress=sink,
        logger=logger,
    )


class _RemoteSyncHelpers(SyncHelpers):
    __slots__ = ()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run any coroutine, in an event loop of its own, and wait for its result."""
        return asyncio.run(coroutine)

    def progress(self, share: float | None = None, note: str | None = None, *, data: object = None) -> None:
        helpers = cast(RemoteHelpers, self._helpers)
        helpers._services.progress.report(helpers.job.id, share, note, data)


class _Nothing:
    """In place of the client, and of the names of queues: every method is missing here."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # not asked for by a task, but by what copies or shows objects
            raise AttributeError(name)
        raise _missing({"jobs": "wait_for", "get": "get_queue_name"}.get(name, name))


def _no_connection() -> NoReturn:
    raise _missing("query and helpers.with_pg_client")


def _missing(what: str) -> JobError:
    return JobError(
        f"helpers.{what} needs the database connections of the worker, which do not exist here, because the "
        "task runs in an executor; open a client of your own, for example SyncWorkerUtils, or let a task do "
        "it that runs in the worker"
    )


class _NoExtensions(Extensions):
    def get(self, kind: type[Any], default: Any = ...) -> Any:
        if default is not ...:
            return default
        raise JobError(
            f"helpers.extension({kind.__name__}) does not exist here: extensions stay in the worker, and the "
            "task runs in an executor; make the object at the top level of a module, or in the initializer"
        )


_NO_EXTENSIONS = _NoExtensions()
