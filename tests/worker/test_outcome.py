"""The messages that are stored in `last_error`."""

from __future__ import annotations

import pytest

from graphile_worker.errors import JobInterruptedError
from graphile_worker.errors.text import MAX_MESSAGE
from graphile_worker.values.outcome import Interrupted, failed


@pytest.mark.compat("FA4")
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("words"), "ValueError: words"),
        (ValueError(), "ValueError"),
        (ValueError("a\0b"), r"ValueError: a\x00b"),
        (ValueError("\ud83d alone"), r"ValueError: \ud83d alone"),
        (SystemExit(2), "SystemExit: 2"),
    ],
)
def test_every_error_has_a_message_that_the_database_takes(error: BaseException, message: str) -> None:
    assert failed(error).message == message
    assert "\0" not in Interrupted(error).message


def test_a_huge_message_is_truncated() -> None:
    assert len(failed(ValueError("x" * (MAX_MESSAGE + 1))).message) == MAX_MESSAGE


def test_a_job_that_never_started_leaves_no_note() -> None:
    assert Interrupted(JobInterruptedError("")).message == ""
