"""The format of log lines, their destination, and broken pipes."""

from __future__ import annotations

import io
import json
import logging
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from graphile_worker.observability.log_format import PipeHandler, configure_logging, debug_wanted

LOGGER = logging.getLogger("graphile_worker.worker")
SCOPE = {"worker_id": "worker-1", "task_identifier": "send_email", "job_id": 7}


@pytest.fixture(autouse=True)
def untouched_logging() -> Iterator[None]:
    logger = logging.getLogger("graphile_worker")
    before = (list(logger.handlers), logger.level, logger.propagate)
    yield
    logger.handlers[:], logger.propagate = before[0], before[2]
    logger.setLevel(before[1])


def test_a_text_line_names_label_worker_task_and_job() -> None:
    out = io.StringIO()
    configure_logging("text", "info", stdout=out)
    LOGGER.info("done", extra=SCOPE)
    LOGGER.info("idle", extra={"worker_id": "worker-1"})
    LOGGER.info("plain")
    logging.getLogger("graphile_worker").info("from the core")
    logging.getLogger("graphile_worker").info("from a task", extra=SCOPE | {"label": "job"})
    assert out.getvalue().splitlines() == [
        "[worker(worker-1: send_email{7})] INFO: done",
        "[worker(worker-1)] INFO: idle",
        "[worker] INFO: plain",
        "[core] INFO: from the core",
        "[job(worker-1: send_email{7})] INFO: from a task",
    ]


def test_a_json_line_has_stable_keys_in_order_and_takes_extra_members() -> None:
    out = io.StringIO()
    configure_logging("json", "info", stdout=out)
    LOGGER.info("done %d", 3, extra={"colour": "red", "attempt": 2, **SCOPE, "path": Path("/x")})
    line = json.loads(out.getvalue())
    assert list(line) == [
        "ts", "level", "logger", "label", "msg", "worker_id", "task", "job_id", "attempt", "colour", "path",
    ]  # fmt: skip
    assert line["msg"] == "done 3"
    assert line["level"] == "info"
    assert line["path"] == "/x"
    assert line["ts"].endswith("Z")
    assert abs((datetime.now(UTC) - datetime.fromisoformat(line["ts"])).total_seconds()) < 60


def test_a_traceback_is_part_of_the_line() -> None:
    out, err = io.StringIO(), io.StringIO()
    error = ValueError("boom")
    configure_logging("json", "debug", stdout=out, stderr=err)
    LOGGER.error("bad", exc_info=error)
    assert json.loads(err.getvalue())["traceback"].endswith("ValueError: boom")
    configure_logging("text", "debug", stdout=out, stderr=(err := io.StringIO()))
    LOGGER.error("bad", exc_info=error)
    assert err.getvalue() == "[worker] ERROR: bad\n    ValueError: boom\n"


FORGED = "no\n[core] INFO: forged\r\x1b[2J\x07\x9b31m\u2028\u202e\ud800 tab\tstays"


def test_control_characters_and_line_breaks_of_a_message_are_escaped_in_text() -> None:
    err = io.StringIO()
    configure_logging("text", "info", stderr=err)
    LOGGER.error("%s", FORGED, extra={"worker_id": "w\n", "task_identifier": "t\x1b", "job_id": 1})
    (line,) = err.getvalue().removesuffix("\n").split("\n")
    assert line == (
        r"[worker(w\n: t\x1b{1})] ERROR: no\n[core] INFO: forged\r\x1b[2J\x07\x9b31m\u2028\u202e\ud800 "
        "tab\tstays"
    )


def test_no_line_of_a_traceback_begins_where_lines_of_the_log_begin() -> None:
    err = io.StringIO()
    configure_logging("text", "info", stderr=err)
    LOGGER.error("bad", exc_info=ValueError(FORGED), stack_info=True)
    first, *rest = err.getvalue().removesuffix("\n").split("\n")
    assert first == "[worker] ERROR: bad"
    assert rest
    assert all(line.startswith("    ") for line in rest if line)
    assert not set("\x1b\x07\r\x9b\u2028") & set("".join(rest))


class Unspeakable:
    def __str__(self) -> str:
        raise KeyError("no words")

    __repr__ = __str__


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise KeyError("no words")

    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]
        raise SystemExit(3)


def test_json_lines_are_written_whatever_is_in_them() -> None:
    endless: dict[str, object] = {}
    endless["self"] = endless
    err = io.StringIO()
    configure_logging("json", "info", stderr=err)
    LOGGER.error(
        "lone \ud800",
        extra={"odd": Unspeakable(), "endless": endless, "fine": 3},
        exc_info=UnspeakableError(),
    )
    line = json.loads(err.getvalue())
    assert line["msg"] == r"lone \ud800"
    assert line["odd"] == "<Unspeakable>"
    assert line["fine"] == 3
    assert "UnspeakableError" in line["traceback"]


def test_an_error_that_cannot_be_formatted_does_not_lose_the_line() -> None:
    err = io.StringIO()
    configure_logging("text", "info", stderr=err)
    LOGGER.error("bad", exc_info=UnspeakableError())
    assert err.getvalue().startswith("[worker] ERROR: bad\n    ")
    assert "UnspeakableError" in err.getvalue()


def test_a_stream_of_another_encoding_gets_escapes_for_what_it_cannot_hold() -> None:
    raw = io.BytesIO()
    configure_logging("text", "info", stdout=io.TextIOWrapper(raw, encoding="latin-1"))
    LOGGER.info("5 € … ü")
    assert raw.getvalue().decode("latin-1") == "[worker] INFO: 5 \\u20ac \\u2026 ü\n"


def test_warnings_and_errors_go_to_standard_error_and_the_rest_to_standard_output() -> None:
    out, err = io.StringIO(), io.StringIO()
    configure_logging("text", "debug", stdout=out, stderr=err)
    for level in ("debug", "info", "warning", "error"):
        getattr(LOGGER, level)(level)
    assert [line.split()[1] for line in out.getvalue().splitlines()] == ["DEBUG:", "INFO:"]
    assert [line.split()[1] for line in err.getvalue().splitlines()] == ["WARNING:", "ERROR:"]


def test_only_our_own_logger_is_set_up_and_only_once() -> None:
    root = logging.getLogger()
    before = (list(root.handlers), root.level)
    configure_logging("text", "info", stdout=io.StringIO())
    configure_logging("json", "warning", stdout=(out := io.StringIO()))
    LOGGER.info("not shown")
    handlers = [h for h in logging.getLogger("graphile_worker").handlers if isinstance(h, PipeHandler)]
    assert len(handlers) == 1
    assert out.getvalue() == ""
    assert (root.handlers, root.level) == before


def test_a_reader_that_went_away_is_reported_once_and_nothing_is_raised() -> None:
    read, write = os.pipe()
    os.close(read)
    broken: list[str] = []
    with os.fdopen(write, "w") as out:
        handler = configure_logging("text", "info", stdout=out, on_broken_pipe=broken.append)
        LOGGER.info("one")
        LOGGER.info("two")
        assert broken == ["standard output"]
        out.write("goes nowhere, raises nothing")
        out.flush()
        err = io.StringIO()
        handler._stderr = err
        LOGGER.warning("still heard")
    assert err.getvalue() == "[worker] WARNING: still heard\n"


def test_a_closed_stream_counts_as_a_reader_that_went_away() -> None:
    out = io.StringIO()
    out.close()
    broken: list[str] = []
    configure_logging("text", "info", stdout=out, on_broken_pipe=broken.append)
    LOGGER.info("one")
    assert broken == ["standard output"]


@pytest.mark.parametrize("variable", ["GRAPHILE_LOGGER_DEBUG", "GRAPHILE_WORKER_DEBUG"])
def test_the_variables_that_node_knows_ask_for_debug_lines(variable: str) -> None:
    assert debug_wanted({variable: "1"})
    assert not debug_wanted({variable: ""})
