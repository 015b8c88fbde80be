"""The format of log lines, their destination, and broken pipes."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import sys
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from graphile_worker.logging import TextFormatter, configure_logging
from graphile_worker.logging.configure import PipeHandler, debug_wanted, is_journal

LOGGER = logging.getLogger("graphile_worker.worker")
SCOPE = {"worker_id": "worker-1", "task_identifier": "send_email", "job_id": 7}


def test_a_text_line_has_time_level_label_and_a_message_that_names_the_job() -> None:
    out = io.StringIO()
    configure_logging("text", "info", stdout=out)
    LOGGER.info("done", extra=SCOPE)
    LOGGER.info("task send_email (job 7) completed", extra=SCOPE)
    LOGGER.info("plain")
    logging.getLogger("graphile_worker").info("from the core")
    logging.getLogger("graphile_worker").info("from a task", extra=SCOPE | {"label": "bank"})
    logging.getLogger("shop.orders").info("from the application")
    lines = out.getvalue().splitlines()
    assert [line[24:] for line in lines] == [
        "INFO [worker] task send_email (job 7): done",
        "INFO [worker] task send_email (job 7) completed",
        "INFO [worker] plain",
        "INFO [core] from the core",
        "INFO [bank] task send_email (job 7): from a task",
        "INFO [shop.orders] from the application",
    ]
    for line in lines:
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} ", line[:24])
        assert abs(datetime.now() - datetime.fromisoformat(line[:23])).total_seconds() < 60


def test_times_in_text_are_local_and_exact_to_the_millisecond() -> None:
    formatter = TextFormatter()
    for created in (1_000_000_000.25, 1_000_000_000.999, 1_000_000_001.001):
        record = logging.makeLogRecord({"msg": "x", "levelname": "INFO", "name": "a", "created": created})
        local = datetime.fromtimestamp(created).isoformat(" ", "milliseconds")
        assert abs(datetime.fromisoformat(formatter.format(record)[:23]) - datetime.fromisoformat(local)) <= (
            timedelta(milliseconds=1)
        )


def test_lines_for_the_journal_have_no_time_because_it_adds_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "journal").open("w+") as journal, (tmp_path / "other").open("w") as other:
        status = os.fstat(journal.fileno())
        assert not is_journal(journal, {})
        assert not is_journal(io.StringIO(), {"JOURNAL_STREAM": "1:2"})
        monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
        assert (is_journal(journal), is_journal(other)) == (True, False)
        configure_logging("text", "info", stdout=journal, stderr=journal)
        LOGGER.info("plain")
        journal.seek(0)
        assert journal.read() == "INFO [worker] plain\n"


def test_a_json_line_has_stable_keys_in_order_and_takes_extra_members() -> None:
    out = io.StringIO()
    configure_logging("json", "info", stdout=out)
    LOGGER.info("done %d", 3, extra={"colour": "red", "attempt": 2, **SCOPE, "path": Path("/x")})
    line = json.loads(out.getvalue())
    assert list(line) == [
        "ts", "level", "logger", "label", "msg", "pid", "worker_id", "task", "job_id", "attempt", "colour",
        "path",
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
    assert err.getvalue()[24:] == "ERROR [worker] bad\n    ValueError: boom\n"


FORGED = "no\n[core] INFO: forged\r\x1b[2J\x07\x9b31m\u2028\u202e\ud800 tab\tstays"


def test_control_characters_and_line_breaks_of_a_message_are_escaped_in_text() -> None:
    err = io.StringIO()
    configure_logging("text", "info", stderr=err)
    LOGGER.error("%s", FORGED, extra={"worker_id": "w\n", "task_identifier": "t\x1b", "job_id": 1})
    (line,) = err.getvalue().removesuffix("\n").split("\n")
    assert line[24:] == (
        r"ERROR [worker] task t\x1b (job 1): no\n[core] INFO: forged\r\x1b[2J\x07\x9b31m\u2028\u202e\ud800 "
        "tab\tstays"
    )


def test_no_line_of_a_traceback_begins_where_lines_of_the_log_begin() -> None:
    err = io.StringIO()
    configure_logging("text", "info", stderr=err)
    LOGGER.error("bad", exc_info=ValueError(FORGED), stack_info=True)
    first, *rest = err.getvalue().removesuffix("\n").split("\n")
    assert first[24:] == "ERROR [worker] bad"
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


def without_pytest() -> None:
    """Remove the handlers of pytest, which fail for records that cannot be formatted."""
    logging.getLogger().handlers.clear()


def test_json_lines_are_written_whatever_is_in_them() -> None:
    without_pytest()
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
    without_pytest()
    err = io.StringIO()
    configure_logging("text", "info", stderr=err)
    LOGGER.error("bad", exc_info=UnspeakableError())
    assert err.getvalue()[24:].startswith("ERROR [worker] bad\n    ")
    assert "UnspeakableError" in err.getvalue()


def test_a_stream_of_another_encoding_gets_escapes_for_what_it_cannot_hold() -> None:
    raw = io.BytesIO()
    configure_logging("text", "info", stdout=io.TextIOWrapper(raw, encoding="latin-1"))
    LOGGER.info("5 € … ü")
    assert raw.getvalue().decode("latin-1")[24:] == "INFO [worker] 5 \\u20ac \\u2026 ü\n"


def test_warnings_and_errors_go_to_standard_error_and_the_rest_to_standard_output() -> None:
    out, err = io.StringIO(), io.StringIO()
    configure_logging("text", "debug", stdout=out, stderr=err)
    for level in ("debug", "info", "warning", "error"):
        getattr(LOGGER, level)(level)
    assert [line.split()[2] for line in out.getvalue().splitlines()] == ["DEBUG", "INFO"]
    assert [line.split()[2] for line in err.getvalue().splitlines()] == ["WARNING", "ERROR"]


def test_the_handler_is_on_the_root_logger_and_a_second_call_replaces_it() -> None:
    configure_logging("text", "info", stdout=(first := io.StringIO()))
    configure_logging("json", "warning", stderr=(second := io.StringIO()))
    LOGGER.info("not shown")
    logging.getLogger("shop").warning("shown")
    handlers = [h for h in logging.getLogger().handlers if isinstance(h, PipeHandler)]
    assert len(handlers) == 1
    assert first.getvalue() == ""
    line = json.loads(second.getvalue())
    assert (line["logger"], line["label"], line["msg"], line["pid"]) == ("shop", "shop", "shown", os.getpid())


def test_other_handlers_on_the_same_streams_are_replaced_and_the_rest_is_kept() -> None:
    root = logging.getLogger()
    console, other = logging.StreamHandler(sys.stderr), logging.StreamHandler(io.StringIO())
    root.addHandler(console)
    root.addHandler(other)
    try:
        configure_logging()
        assert console not in root.handlers  # else each line would appear twice
        assert other in root.handlers
    finally:
        root.removeHandler(other)


def test_single_loggers_can_have_levels_of_their_own() -> None:
    out = io.StringIO()
    levels = {"test_levels.quiet": "error", "test_levels.chatty": "debug"}
    configure_logging("text", "info", levels=levels, stdout=out, stderr=out)
    for name in ("quiet.below", "chatty.below", "other"):
        logger = logging.getLogger(f"test_levels.{name}")
        for level in ("debug", "info", "warning", "error"):
            getattr(logger, level)("%s %s", name, level)
    assert [line.rpartition("] ")[2] for line in out.getvalue().splitlines()] == [
        "quiet.below error",
        *(f"chatty.below {level}" for level in ("debug", "info", "warning", "error")),
        *(f"other {level}" for level in ("info", "warning", "error")),
    ]


def test_warnings_of_python_are_one_line_of_the_log() -> None:
    err = io.StringIO()
    configure_logging("text", "info", stderr=err)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("the old way", DeprecationWarning, stacklevel=1)
    (line,) = err.getvalue().splitlines()
    assert re.fullmatch(
        rf"WARNING \[py\.warnings\] {re.escape(__file__)}:\d+: DeprecationWarning: the old way", line[24:]
    )


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_message_that_does_not_fit_its_arguments_is_reported_in_the_same_format(log_format: str) -> None:
    without_pytest()
    out = io.StringIO()
    configure_logging(log_format, "info", stdout=out)
    logging.getLogger("shop").info("%d orders", "many")
    (line,) = out.getvalue().splitlines()
    text = json.loads(line)["msg"] if log_format == "json" else line
    assert f"cannot format the log message '%d orders' ({__file__}:" in text
    assert "TypeError" in text


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
    assert err.getvalue()[24:] == "WARNING [worker] still heard\n"


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
