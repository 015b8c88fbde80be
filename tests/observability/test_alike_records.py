"""Records that are made from a pattern look as if Python had made them."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from graphile_worker.logging.alike_records import AlikeRecords

LINE = (logging.INFO, __file__, "task %s (job %d) completed", "where")
TIMES = {"created", "msecs", "relativeCreated"}


def ours(logger: logging.Logger) -> AlikeRecords:
    return AlikeRecords(logger, *LINE)


def theirs(logger: logging.Logger, args: tuple[Any, ...], extra: dict[str, Any]) -> logging.LogRecord:
    level, path, message, function = LINE
    return logger.makeRecord(logger.name, level, path, 0, message, args, None, function, extra)


def untimed(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in TIMES}


def test_it_has_every_attribute(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("alike")
    records = ours(logger)
    monkeypatch.setattr("time.time", lambda: 1_800_000_000.25)  # the pattern is that of this second
    records.record(("first", 1), {"job_id": 1, "only_first": True})
    record = records.record(("send", 7), {"job_id": 7})
    expected = theirs(logger, ("send", 7), {"job_id": 7})
    assert type(record) is logging.LogRecord
    assert list(untimed(record)) == list(untimed(expected))
    assert untimed(record) == untimed(expected)
    assert record.getMessage() == "task send (job 7) completed"
    assert (record.created, record.msecs) == (1_800_000_000.25, 250.0)


def test_the_times_are_its_own() -> None:
    logger = logging.getLogger("alike")
    records = ours(logger)
    records.record((), {})
    before = theirs(logger, (), {})
    record = records.record((), {})
    after = theirs(logger, (), {})
    assert before.created <= record.created <= after.created
    slack = 0.1  # milliseconds: Python rounds them otherwise
    assert before.relativeCreated - slack <= record.relativeCreated <= after.relativeCreated + slack
    assert record.msecs == int(record.created % 1 * 1000)


def test_each_thread_has_its_name() -> None:
    logger = logging.getLogger("alike")
    records = ours(logger)
    records.record((), {})
    found: list[logging.LogRecord] = []
    thread = threading.Thread(target=lambda: found.append(records.record((), {})), name="the other")
    thread.start()
    thread.join()
    assert [(record.threadName, record.thread) for record in found] == [("the other", thread.ident)]
    assert records.record((), {}).threadName == threading.current_thread().name


async def test_each_asyncio_task_has_its_name() -> None:
    """From Python 3.12 on; before, neither has one."""
    logger = logging.getLogger("alike")
    records = ours(logger)

    async def both() -> tuple[object, object]:
        record, other = records.record((), {}), theirs(logger, (), {})
        return getattr(record, "taskName", None), getattr(other, "taskName", None)

    found = [await asyncio.create_task(both(), name=name) for name in ("first", "second")]
    assert [mine for mine, _ in found] == [usual for _, usual in found]


def test_the_factory_of_the_program_makes_every_record(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("alike")
    records = ours(logger)
    records.record((), {})
    before, numbers = logging.getLogRecordFactory(), iter(range(10))

    def factory(*arguments: Any, **options: Any) -> logging.LogRecord:
        record = before(*arguments, **options)
        record.number = next(numbers)
        return record

    logging.setLogRecordFactory(factory)
    try:
        assert [vars(records.record((), {}))["number"] for _ in range(3)] == [0, 1, 2]
    finally:
        logging.setLogRecordFactory(before)
    assert "number" not in vars(records.record((), {}))


def test_so_does_a_logger_with_a_method_of_its_own() -> None:
    class Own(logging.Logger):
        def makeRecord(self, *arguments: Any, **options: Any) -> logging.LogRecord:
            record = super().makeRecord(*arguments, **options)
            record.own = True
            return record

    assert vars(ours(Own("own")).record((), {"job_id": 1}))["own"]
