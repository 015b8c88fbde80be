"""Batch jobs: an array payload whose task answers with a list, one outcome per item (BJ1 to BJ4).

An item of the answer may be an awaitable, an exception, or anything else, which means success. Every
awaitable is awaited whatever happens, so none is left behind with an error that nobody sees.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from typing import Any

import msgspec

from ..errors import BatchFailureError

_items_decoder = msgspec.json.Decoder(list[msgspec.Raw])


class BatchFailure(msgspec.Struct, frozen=True):
    """Some items failed: what is left of the payload, as JSON text, and one error per failed item."""

    remaining_payload: str
    errors: tuple[BaseException, ...]

    @property
    def error(self) -> BatchFailureError:
        """The error to record for the job."""
        return BatchFailureError(self.errors)


def may_be_batch(result: object) -> bool:
    """Whether a task's result asks for `settle_batch`; cheap enough for every job."""
    return result.__class__ is list or result.__class__ is tuple


async def settle_batch(
    raw_payload: str, result: Sequence[Any], logger: Any | None = None
) -> BatchFailure | None:
    """Await every item of a task's answer; the failures, or None if the job succeeded.

    The failed items are cut out of the payload's own text, so they keep exactly the form they had.
    A list whose length differs from the payload's says nothing about items: a warning, and success.
    """
    if not raw_payload.lstrip().startswith("["):
        return None
    errors = await _outcomes(result)
    items = _items_decoder.decode(raw_payload)
    if len(items) != len(result):
        if logger is not None:
            logger.warning(
                "the payload has %d items but the task returned a list of %d; the job counts as completed",
                len(items),
                len(result),
            )
        return None
    failed = [(item, error) for item, error in zip(items, errors, strict=True) if error is not None]
    if not failed:
        return None
    remaining = b"[" + b",".join(bytes(item) for item, _ in failed) + b"]"
    return BatchFailure(remaining.decode(), tuple(error for _, error in failed))


async def _outcomes(result: Sequence[Any]) -> list[BaseException | None]:
    """The error of each item, None for those that succeeded; awaitables run side by side."""
    if not any(inspect.isawaitable(item) for item in result):
        return [item if isinstance(item, BaseException) else None for item in result]
    return await asyncio.gather(*(_outcome(item) for item in result))


async def _outcome(item: Any) -> BaseException | None:
    if inspect.isawaitable(item):
        try:
            item = await item
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return error  # the item was cancelled by somebody else, not this job by the worker
        except BaseException as error:  # SystemExit too: it must not end the loop
            return error
    return item if isinstance(item, BaseException) else None
