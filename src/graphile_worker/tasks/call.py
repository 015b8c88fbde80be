"""Calling a task: a coroutine on the event loop, or a plain function in a thread.

In a batch job the payload is an array and the task returns a list with one result per item (BJ1 to BJ4). A
result may be an awaitable or an exception; anything else means success. All awaitables are awaited, so that
no error is lost.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from ..errors import BatchFailureError
from .helpers import JobHelpers
from .task import AnyTask
from .threads import TaskThreads


def call_task(task: AnyTask, payload: Any, helpers: JobHelpers, threads: TaskThreads) -> Awaitable[Any]:
    """Call a task with a decoded payload; await the returned value for what the function returned.

    The caller has set `current_helpers` in this context. For an `async def` the returned value is the task's
    own coroutine, without a wrapper.
    """
    if task.is_async:
        coroutine: Awaitable[Any] = task._invoke(payload, helpers)
        return coroutine
    return _call_in_thread(task, payload, helpers, threads)


async def _call_in_thread(task: AnyTask, payload: Any, helpers: JobHelpers, threads: TaskThreads) -> Any:
    label = label_of(task.identifier, helpers.job.id)
    helpers._in_thread = threads.submit(label, task._invoke, payload, helpers)
    try:
        return await helpers._in_thread
    finally:
        helpers._in_thread = None


def label_of(identifier: str, job_id: int) -> str:
    """The name of a call in a thread."""
    return f"{identifier} (job {job_id})"


_items_decoder = msgspec.json.Decoder(list[msgspec.Raw])


class BatchFailure(msgspec.Struct, frozen=True):
    """The failed items as JSON, and one error for each."""

    items: tuple[msgspec.Raw, ...]
    errors: tuple[BaseException, ...]

    @property
    def remaining_payload(self) -> str:
        """The text of a payload with all failed items."""
        return payload_of(self.items)

    @property
    def error(self) -> BatchFailureError:
        """The error to record for the job."""
        return BatchFailureError(self.errors)


def payload_of(items: Sequence[msgspec.Raw]) -> str:
    """The text of a payload with these items."""
    return (b"[" + b",".join(bytes(item) for item in items) + b"]").decode()


def may_be_batch(result: object) -> bool:
    """Whether `settle_batch` must be called for a task's result; cheap enough for every job."""
    return result.__class__ is list or result.__class__ is tuple


async def settle_batch(
    raw_payload: str,
    result: Sequence[Any],
    logger: Any | None = None,
    *,
    cancelled_item: Callable[[], BaseException | None] = lambda: None,
) -> BatchFailure | None:
    """Await all results of a batch; return the failures, or None if there are none.

    `cancelled_item` is called when the job is cancelled. Its answer is the error of every item that has not
    ended; None to raise the cancellation.

    The failed items are copied from the text of the payload, so that they keep their exact form. A list
    whose length differs from the payload's cannot be matched to items: it is logged and treated as success.
    """
    if not raw_payload.lstrip().startswith("["):
        return None
    errors = await _errors_of(result, cancelled_item)
    items = _items_decoder.decode(raw_payload)
    if len(items) != len(result):
        if logger is not None:
            logger.warning(
                "the payload has %d items but the task returned a list of %d; the job is completed",
                len(items),
                len(result),
            )
        return None
    failed = [(item, error) for item, error in zip(items, errors, strict=True) if error is not None]
    if not failed:
        return None
    return BatchFailure(tuple(item for item, _ in failed), tuple(error for _, error in failed))


async def _errors_of(
    result: Sequence[Any], cancelled_item: Callable[[], BaseException | None]
) -> list[BaseException | None]:
    """The error of each item, None for success; awaitables run concurrently."""
    if not any(inspect.isawaitable(item) for item in result):
        return [item if isinstance(item, BaseException) else None for item in result]
    items = [asyncio.ensure_future(_error_of(item)) for item in result]
    try:
        await asyncio.gather(*items, return_exceptions=True)  # waits for all, also for those it cancels
    except asyncio.CancelledError:
        error = cancelled_item()
        if error is None:
            raise
    else:
        return [item.result() for item in items]
    current = asyncio.current_task()
    while current is not None and current.cancelling():
        current.uncancel()
    return [error if item.cancelled() else item.result() for item in items]


async def _error_of(item: Any) -> BaseException | None:
    if inspect.isawaitable(item):
        try:
            item = await item
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return error  # the item was cancelled, not the job
        except BaseException as error:  # SystemExit too, which would end the event loop
            return error
    return item if isinstance(item, BaseException) else None
