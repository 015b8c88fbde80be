"""Pages for a terminal."""

from __future__ import annotations

from datetime import UTC, datetime

from graphile_worker.admin import plain


def test_a_table_aligns_numbers_and_wide_characters() -> None:
    text = plain.table(["Task", "Waiting"], [["send_email", 1102], ["日本", 3]])
    assert text.splitlines() == ["TASK        WAITING", "send_email    1,102", "日本              3"]


def test_a_table_without_rows_says_so() -> None:
    assert plain.table(["Task"], [], empty="No tasks.") == "No tasks."


def test_cells_cannot_steer_a_terminal() -> None:
    assert plain.cell("a\x1b[31mb\nc\u202e") == "a\ufffd[31mb c\ufffd"
    assert len(plain.cell("x" * 10_000)) == plain.LONGEST


def test_fields_and_pages() -> None:
    at = datetime(2026, 11, 16, 3, 14, 7, tzinfo=UTC)
    text = plain.page("Job 12", plain.fields([("task", "send_email"), ("at", at), ("held", True)]))
    assert text == "Job 12\n\ntask  send_email\nat    2026-11-16 03:14:07Z\nheld  yes\n"
