"""The outcome of batch jobs, item by item."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any

import pytest

from graphile_worker.errors import BatchFailureError
from graphile_worker.tasks.call import may_be_batch, settle_batch
from support.cases import looped

THREE = '[{"a":1}, {"a": 2},{"a":3.00}]'


async def good() -> str:
    await asyncio.sleep(0)
    return "fine"


async def bad(message: str) -> None:
    await asyncio.sleep(0)
    raise ValueError(message)


@looped(("result", "expected"), [([], True), ((), True), (None, False), ("ab", False), ({}, False)])
def test_only_lists_and_tuples_may_be_batches(result: Any, expected: bool) -> None:
    assert may_be_batch(result) is expected


@pytest.mark.compat("BAT-4", "BAT-5")
async def test_failed_items_are_left_in_order_and_in_their_own_form() -> None:
    failure = await settle_batch(THREE, [bad("rejected 1"), good(), bad("rejected 3")])
    assert failure is not None
    assert failure.remaining_payload == '[{"a":1},{"a":3.00}]'
    assert [str(error) for error in failure.errors] == ["rejected 1", "rejected 3"]
    assert isinstance(failure.error, BatchFailureError)
    assert [line.partition(" at ")[0] for line in str(failure.error).split("\n")] == [
        "Batch failures:",
        "ValueError: rejected 1",
        "ValueError: rejected 3",
    ]


async def test_items_may_be_exceptions_values_awaitables_and_what_these_come_to() -> None:
    async def gives_back_an_error() -> Exception:
        return KeyError("inner")

    error = RuntimeError("plain")
    payload = "[1, 2, 3, 4, 5]"
    result = [error, None, 0, asyncio.ensure_future(good()), gives_back_an_error()]
    failure = await settle_batch(payload, result)
    assert failure is not None
    assert failure.remaining_payload == "[1,5]"
    assert failure.errors[0] is error
    assert isinstance(failure.errors[1], KeyError)


async def test_a_list_of_exceptions_and_values_as_gather_returns_it_is_understood() -> None:
    gathered = await asyncio.gather(bad("one"), good(), return_exceptions=True)
    failure = await settle_batch("[1,2]", gathered)
    assert failure is not None
    assert failure.remaining_payload == "[1]"


async def test_awaitables_run_side_by_side() -> None:
    barrier = asyncio.Barrier(3)
    assert await settle_batch(THREE, [barrier.wait(), barrier.wait(), barrier.wait()]) is None


async def test_success_of_every_item_is_success() -> None:
    assert await settle_batch(THREE, [good(), None, "value"]) is None
    assert await settle_batch("[]", []) is None


async def test_a_payload_that_is_no_array_is_no_batch() -> None:
    assert await settle_batch('{"a": [1]}', [ValueError("ignored")]) is None
    assert await settle_batch('"[1]"', [ValueError("ignored")]) is None


async def test_white_space_before_an_array_does_not_hide_it() -> None:
    assert await settle_batch(" \n[1]", [ValueError("seen")]) is not None


async def test_a_list_of_another_length_is_success_with_a_warning_and_every_item_is_awaited(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ended = []

    async def ends() -> None:
        ended.append(True)
        raise ValueError("ignored")

    assert await settle_batch(THREE, [ends(), ends()], logging.getLogger("test")) is None
    assert ended == [True, True]
    assert "the payload has 3 items but the task returned a list of 2" in caplog.text


async def test_an_item_that_exits_or_is_cancelled_by_itself_only_fails() -> None:
    async def exits() -> None:
        sys.exit("out")

    async def cancelled() -> None:
        raise asyncio.CancelledError

    failure = await settle_batch("[1,2,3]", [exits(), good(), cancelled()])
    assert failure is not None
    assert failure.remaining_payload == "[1,3]"
    assert isinstance(failure.errors[0], SystemExit)


async def test_cancelling_the_job_cancels_its_items() -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    async def waits() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    settling = asyncio.ensure_future(settle_batch("[1]", [waits()]))
    await started.wait()
    settling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await settling
    assert stopped.is_set()


async def test_a_cancelled_batch_waits_until_every_item_has_ended() -> None:
    started, may_end = asyncio.Event(), asyncio.Event()

    async def ends_at_once() -> None:
        await asyncio.Event().wait()

    async def cleans_up() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await may_end.wait()
            raise OSError("rejected while it ended")

    timeout = TimeoutError("the job took too long")
    settling = asyncio.ensure_future(
        settle_batch(THREE, [ends_at_once(), good(), cleans_up()], cancelled_item=lambda: timeout)
    )
    await started.wait()
    settling.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not settling.done()
    may_end.set()
    failure = await settling
    assert failure is not None
    assert failure.errors[0] is timeout
    assert str(failure.errors[1]) == "rejected while it ended"
